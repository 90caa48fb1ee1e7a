// The state between this rank and one other rank: large transfers in flight, their data link, and
// counts of small messages. PointToPoint owns one for each rank with which this rank has exchanged
// messages. Lives on the progress thread; never waits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/result.h"
#include "collectives/mesh/data_link.h"
#include "runtime/submission/submission.h"

namespace hvd::runtime {

class PeerLink {
 public:
  // `mesh` may be null: large messages are then sent in pieces, over the message links.
  PeerLink(int32_t rank, const collectives::SharedMesh& mesh);

  int32_t rank() const { return rank_; }
  bool is_local() const { return !link_ || link_->is_local(); }
  // Opens the stream to a peer on another host.
  void open_stream() {
    if (link_ && !link_->is_local()) link_->open_stream();
  }
  // Prepares a transfer to the peer: opens the stream between hosts, or makes the ring within a host. Returns the
  // place of a new ring.
  std::optional<collectives::SharedHeap::Place> prepare();
  // Returns whether large messages to the peer are sent in pieces.
  bool sends_pieces() const { return sends_pieces_; }
  Status open_ring(const collectives::SharedHeap::Place& place);
  void keep_ring() {
    if (link_) link_->keep_ring();
  }

  // The sends that the peer has accepted, and the receives that this rank has accepted, in that order.
  std::deque<Submission*> outgoing;
  std::vector<Submission*> incoming;
  // Within a host, for messages in the sender's shared memory: sends whose memory the peer copies,
  // and receives that this rank copies.
  std::vector<Submission*> lent;
  struct Copy {
    Submission* receive;
    collectives::SharedHeap::Place place;
  };
  std::deque<Copy> copies;
  bool is_active() const {
    return !outgoing.empty() || !incoming.empty() || !lent.empty() || !copies.empty();
  }
  Submission* find_incoming(uint64_t id) const;
  // Removes and returns all sends and receives, which stop moving.
  std::vector<Submission*> drop_transfers();

  // Move as many bytes as the link allows, up to a limit. Return a completed send or receive, or null; set *moved
  // if bytes moved. A transfer consists of the id and the size of its message, followed by the bytes.
  Submission* write(bool* moved);
  Result<Submission*> read(bool* moved);
  // Copies a part of the first receive in `copies`.
  Result<Submission*> copy();
  // Returns the place of this rank's message for the peer, if the message lies in shared memory.
  std::optional<collectives::SharedHeap::Place> place_of(ByteView data) const {
    if (!link_) return {};
    return link_->place_of(data);
  }
  // Returns whether read(), write() or copy() would move bytes that no event announces.
  bool may_move() { return !copies.empty() || (link_ && may_move_in_link()); }

  uint64_t unread = 0;        // bytes of small messages that the peer's program has not received
  uint64_t consumed = 0;      // bytes of the peer's small messages since the last report
  bool has_sent = false;      // sent messages since the last flush
  bool awaits_flush = false;  // this rank has asked whether all messages arrived
  bool owes_flushed = false;  // the peer has asked whether all messages arrived

 private:
  bool may_move_in_link() {
    return (!incoming.empty() && link_->may_read()) ||
           (!outgoing.empty() && !sends_pieces_ && link_->may_write());
  }
  struct TransferHeader {
    uint64_t id;
    uint64_t size;
  };
  static constexpr size_t kHeader = sizeof(TransferHeader);

  const int32_t rank_;
  std::optional<collectives::DataLink> link_;
  bool sends_pieces_ = false;
  size_t header_sent_ = 0;  // sent header bytes of the first outgoing transfer
  std::array<std::byte, kHeader> received_header_{};
  size_t header_received_ = 0;
  Submission* receiving_ = nullptr;  // the receive of the next bytes
};

}  // namespace hvd::runtime
