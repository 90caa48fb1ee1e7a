// One end of a byte stream that continues on another connection after its connection broke. Counts the bytes of both
// directions, keeps unacknowledged bytes, and sends them again on the next connection, where both ends prove that
// they have the session's key. Launcher and agent each own one such object. Pure: opens no connection and reads no
// clock.
//
// On a connection, the bytes are sent in records: a length of 32 bits, whose top bit means the end
// of the stream, the number of bytes that the record's sender has received in the session (64
// bits), and that many bytes; all numbers are little-endian.
//
// The states of the link. ResumableDuplex of the launcher and LauncherLink of the agent pass through them:
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
  // The maximum number of unacknowledged bytes that the stream keeps.
  static constexpr size_t kMostKept = 1 << 20;
  static constexpr size_t kMostInRecord = 64 << 10;
  static constexpr size_t kRecordHeader = 12;

  // `key` must be the same at both ends of the stream.
  explicit ResumableStream(const SessionKey& key);

  // Returns the identity of the session, which does not reveal the key.
  const SessionId& id() const { return id_; }

  // Returns the number of bytes that put() accepts now.
  size_t room() const { return kMostKept - kept().size(); }
  void put(ByteView bytes);
  // Declares that no further bytes follow, on this connection or on another one.
  void end() { is_ending_ = true; }
  // Returns whether take() would return bytes, or the end.
  bool has_unsent() const;
  // Returns whether the peer has received everything.
  bool is_acknowledged() const { return kept().empty(); }
  // Returns the next record for the connection; may be empty. Call it after put(), end() and receive().
  Bytes take();

  // Handles bytes from the connection. Removes the records' headers in place, and returns the
  // number of stream bytes, which then lie at the front. An error is final.
  Result<size_t> receive(std::span<std::byte> bytes);
  bool has_ended() const { return is_end_announced_ && left_ == 0; }

  // Returns the agent's offer to resume the session on another connection, to be sent before any record. The nonces are
  // random; the launcher sends its nonce first.
  Resume offer(const Nonce& of_launcher, const Nonce& of_agent) const;
  // Checks the agent's offer, and continues on the new connection. The launcher calls this function. After an error,
  // the stream is unchanged, and the caller refuses the connection.
  Result<Resumed> answer(const Resume& offer, const Nonce& of_launcher);
  // Checks the answer to `offer`, and continues on the new connection. The agent calls this function. After an error,
  // the stream is unchanged, and the caller refuses the connection.
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
  uint64_t acknowledged_ = 0;  // bytes that the peer has received
  uint64_t sent_ = 0;          // bytes put on this connection or acknowledged
  uint64_t sent_at_most_ = 0;  // bytes put on any connection
  bool is_ending_ = false;
  bool is_end_sent_ = false;

  std::array<std::byte, kRecordHeader> header_{};
  size_t header_size_ = 0;  // bytes of header_ that have arrived
  size_t left_ = 0;         // bytes of the current record that have not arrived
  uint64_t received_ = 0;
  uint64_t announced_ = 0;  // the part of received_ that the peer knows from a record
  bool is_end_announced_ = false;
};

}  // namespace hvd::launcher
