// One end of a stream of bytes that continues over another connection after its connection broke. Counts
// the bytes of both directions, keeps those that the far side has not acknowledged, and sends them again
// over the next connection, on which both ends prove that they have the key of the session. Launcher and
// agent each own one. Pure: opens no connection and knows no time.
//
// On a connection, the bytes travel in records: a length of 32 bits, whose top bit means the end of the
// stream, the number of bytes that the sender of the record has received in the session (64 bits), and
// that many bytes; all numbers are little-endian.
//
// The life of the link, which ResumableDuplex of the launcher and LauncherLink of the agent go through by it:
//
//     connected ──the connection breaks──> broken ──no other connection in time──> lost
//      │     ^                               │
//      │     └────another one, resumed───────┘
//      └──both ends have ended the stream──> ended
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

class ResumableStream {
 public:
  // The number of bytes that the stream keeps until they are acknowledged.
  static constexpr size_t kMostKept = 1 << 20;
  static constexpr size_t kMostInRecord = 64 << 10;
  static constexpr size_t kRecordHeader = 12;

  // Both ends have the same key.
  explicit ResumableStream(const SessionKey& key);

  // Identifies the session. It does not reveal the key.
  const SessionId& id() const { return id_; }

  // The number of bytes that put() accepts now.
  size_t room() const { return kMostKept - kept().size(); }
  void put(ByteView bytes);
  // Nothing follows, on this connection or on another one.
  void end() { is_ending_ = true; }
  // True while take() has bytes to send, or the end.
  bool has_unsent() const;
  // Whether the far side has received everything.
  bool is_acknowledged() const { return kept().empty(); }
  // The next record for the connection; empty if there is none. Call it after put(), end() and receive().
  Bytes take();

  // Takes bytes of the connection. Removes the records' headers in place, and returns the number of bytes
  // of the stream, which then lie at the front. An error is final.
  Result<size_t> receive(std::span<std::byte> bytes);
  // The far side has ended the stream.
  bool has_ended() const { return is_end_announced_ && left_ == 0; }

  // Before the first record of another connection, the agent offers to resume the session, and the
  // launcher answers. Nonces are random; the launcher's comes first. An error refuses the connection and
  // changes nothing.
  Resume offer(const Nonce& of_launcher, const Nonce& of_agent) const;
  // At the launcher.
  Result<Resumed> answer(const Resume& offer, const Nonce& of_launcher);
  // At the agent: the answer to its offer.
  Status confirm(const Resume& offer, const Nonce& of_launcher, const Resumed& answer);

 private:
  ByteView kept() const { return ByteView(kept_).subspan(begin_); }
  Status acknowledge(uint64_t received);
  Status take_header();
  Proof prove(std::string_view who, const Nonce& of_launcher, const Nonce& of_agent,
              uint64_t received) const;
  Status continue_at(uint64_t received);

  const SessionKey key_;
  const SessionId id_;

  Bytes kept_;  // kept_[begin_] is the first unacknowledged byte
  size_t begin_ = 0;
  uint64_t acknowledged_ = 0;  // bytes that the far side has received
  uint64_t sent_ = 0;          // bytes put on this connection or acknowledged
  uint64_t sent_at_most_ = 0;  // on any connection
  bool is_ending_ = false;
  bool is_end_sent_ = false;

  std::array<std::byte, kRecordHeader> header_{};
  size_t header_size_ = 0;  // bytes of header_ that have arrived
  size_t left_ = 0;         // bytes of the current record that have not arrived
  uint64_t received_ = 0;
  uint64_t announced_ = 0;  // the part of received_ that the far side has been sent
  bool is_end_announced_ = false;
};

}  // namespace hvd::launcher
