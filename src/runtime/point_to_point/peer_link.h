// The state between this rank and one other rank: the transfers of large messages in flight, the data link that
// carries them, and counts of small messages. PointToPoint owns one for each rank with which this one has
// exchanged messages. Lives on the progress thread; never waits.
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
  // `mesh` may be null: then large messages travel in pieces, over the message links.
  PeerLink(int32_t rank, const collectives::SharedMesh& mesh);

  int32_t rank() const { return rank_; }
  bool is_local() const { return !link_ || link_->is_local(); }
  // Between hosts: opens the stream.
  void open_stream() {
    if (link_ && !link_->is_local()) link_->open_stream();
  }
  // Prepares the first transfer to the peer. Returns the place of a ring that the peer does not know yet.
  std::optional<collectives::SharedHeap::Place> prepare();
  // Whether large messages to the peer travel in pieces.
  bool sends_pieces() const { return sends_pieces_; }
  Status open_ring(const collectives::SharedHeap::Place& place);
  void keep_ring() {
    if (link_) link_->keep_ring();
  }

  // The sends whose data the peer has accepted, in that order, and the receives that this rank has accepted.
  std::deque<Submission*> outgoing;
  std::vector<Submission*> incoming;
  // Inside a host, for messages in the sender's shared memory: sends whose memory the peer copies, and receives
  // that this rank copies.
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
  // Forgets and returns the sends and receives of all of them. Nothing more is moved.
  std::vector<Submission*> drop_transfers();

  // Copy what the link takes or has, up to a limit. Return the send or receive that is complete now, or null;
  // add to *moved. A transfer is the id and the size of its message, followed by the bytes.
  Submission* write(bool* moved);
  Result<Submission*> read(bool* moved);
  // Copies a part of the first of `copies`.
  Result<Submission*> copy();
  // The place of a message for the peer, if it lies in shared memory.
  std::optional<collectives::SharedHeap::Place> place_of(ByteView data) const {
    if (!link_) return {};
    return link_->place_of(data);
  }
  // Whether they would move bytes although no event announces that.
  bool may_move() { return !copies.empty() || (link_ && may_move_in_link()); }

  uint64_t unread = 0;    // bytes of small messages that the peer's program has not received
  uint64_t consumed = 0;  // bytes of the peer's small messages since this rank last reported them
  bool has_sent = false;  // messages since the last flush
  bool awaits_flush = false;  // this rank has asked whether all have arrived
  bool owes_flushed = false;  // the peer has asked

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
  size_t header_sent_ = 0;  // of the first outgoing transfer
  std::array<std::byte, kHeader> received_header_{};
  size_t header_received_ = 0;
  Submission* receiving_ = nullptr;  // the receive of the next bytes
};

}  // namespace hvd::runtime
