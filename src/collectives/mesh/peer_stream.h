// A TCP stream to a rank on another host: authenticated, non-blocking, edge-triggered. With keys, the stream carries
// encrypted records. Owns the socket and does not interpret the bytes. One caller at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/fork_guard.h"
#include "base/result.h"
#include "base/secrets/aes_gcm.h"
#include "base/secrets/hmac.h"
#include "net/event_loop.h"

namespace hvd::collectives {

// The records of an encrypted link between two ranks: AES-256-GCM, with a key for each link and
// direction. Moves no bytes itself. One caller at a time.
//
// A record: the length of its content (uint32), the complement of this length, the encrypted
// content, a tag of 16 bytes. The nonce is the record's number in its direction, which is not sent: the
// tag of a repeated, reordered or omitted record does not match. The tag also covers the length. The
// complement detects most changed lengths at once; otherwise the receiver would wait for bytes that
// never come.

// The keys of one link, from both ranks' proofs (Handshake).
struct LinkKeys {
  Digest sending, receiving;
};

// The cipher of one direction and the number of the next record. After each 2^20 records, derives a new
// key from the link's key, so that the amount of data under one key stays within the limits of AES-GCM.
class RecordCipher {
 public:
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 20;

  RecordCipher(const Digest& key, AesGcm::Direction direction, uint64_t first)
      : link_key_(key), direction_(direction), next_(first) {}
  bool is_used_up() const { return next_ == UINT64_MAX; }
  // Returns the cipher for the next record and sets the record's number. Call it only if is_used_up() is false.
  AesGcm& advance(uint64_t& number);

 private:
  HmacKey link_key_;
  AesGcm::Direction direction_;
  uint64_t next_;
  std::optional<AesGcm> cipher_;
};

class RecordSealer {
 public:
  static constexpr size_t kHeader = 2 * sizeof(uint32_t);
  static constexpr size_t kMostContent = 64 * 1024;
  static constexpr size_t kMostParts = 4;

  // `first`: number of the first record.
  explicit RecordSealer(const Digest& key, uint64_t first = 0)
      : cipher_(key, AesGcm::Direction::kSeal, first) {}

  // Seals bytes of the parts, without the first `skip` bytes, in one record. Returns the number of sealed
  // bytes. Call it only if output() is empty. An error is final: the record numbers are used up.
  Result<size_t> seal(std::span<const ByteView> parts, size_t skip = 0);
  // Returns the bytes of the record that have not been sent.
  ByteView output() const { return ByteView(record_).subspan(sent_, size_ - sent_); }
  void sent(size_t size) { sent_ += size; }

 private:
  RecordCipher cipher_;
  Bytes record_;
  size_t size_ = 0;
  size_t sent_ = 0;
};

class RecordOpener {
 public:
  explicit RecordOpener(const Digest& key, uint64_t first = 0)
      : cipher_(key, AesGcm::Direction::kOpen, first) {}

  // Returns the buffer for the next bytes from the link; never empty. Call it only after take() returned 0.
  std::span<std::byte> space();
  void advance(size_t size) { end_ += size; }
  // Takes content of the next record, at most bytes.size(), which is not 0. Returns 0 until the
  // complete record has arrived; returns content only after checking its tag. An error is final;
  // `bytes` may then hold bytes that the sender did not send.
  Result<size_t> take(std::span<std::byte> bytes);
  // Returns whether take() would return content or an error.
  bool has_content() const;

 private:
  // The initial buffer size, for links that carry small messages, and the full size.
  static constexpr size_t kSmallRoom = 4096;
  static constexpr size_t kRoom = 256 * 1024;

  // The length of the next record's content; 0 before its header has arrived, kBroken for an invalid header.
  static constexpr size_t kBroken = SIZE_MAX;
  size_t next_length() const;
  Status broken();

  RecordCipher cipher_;
  Bytes bytes_;
  size_t begin_ = 0;  // [begin_, end_): received bytes of unopened records
  size_t end_ = 0;
  ByteView content_;  // content of a record opened in bytes_, not taken yet
  bool is_broken_ = false;
};

class PeerStream final {
 public:
  PeerStream(net::EventLoop& loop, int32_t peer, uint64_t id) : loop_(loop), peer_(peer), id_(id) {}
  ~PeerStream() { close(); }
  PeerStream(const PeerStream&) = delete;
  PeerStream& operator=(const PeerStream&) = delete;

  int32_t peer() const { return peer_; }
  uint64_t id() const { return id_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  // Takes over a connected socket. With keys, both directions carry encrypted records.
  Status attach(GuardedFd socket, const std::optional<LinkKeys>& keys = std::nullopt);
  void close();

  // Return the number of bytes written or read; 0 before the stream is open, if the call would
  // block, and after the stream's end. After a partial write, the next write must begin with the
  // unwritten bytes: a record may already contain them.
  size_t write_some(ByteView bytes);
  size_t read_some(std::span<std::byte> bytes);
  // Like write_some, for up to four parts, by one system call for each record.
  size_t write_parts(std::span<const ByteView> parts);
  // Like read_some, by at most one system call for each record.
  size_t read_once(std::span<std::byte> bytes);
  // Returns whether a read may find bytes.
  bool may_read() const { return readable_ || (records_ && records_->opener.has_content()); }

  // Returns whether the connection has ended. Reads may still find bytes that arrived before.
  bool ended() const { return ended_; }
  // Returns the errno value of the end, or 0 if the peer closed the connection. EBADMSG: a record differs
  // from the record that the peer sent.
  int end_reason() const { return end_reason_; }

 private:
  void on_events(uint32_t events);
  void end(int reason);
  size_t wrote(ssize_t size);
  size_t receive(std::span<std::byte> bytes);
  size_t write_records(std::span<const ByteView> parts);
  size_t read_record(std::span<std::byte> bytes);

  struct Records {
    explicit Records(const LinkKeys& keys) : sealer(keys.sending), opener(keys.receiving) {}
    RecordSealer sealer;
    RecordOpener opener;
    size_t sealed = 0;  // bytes of the last sealed record that write_some has not counted yet
  };

  net::EventLoop& loop_;
  int32_t peer_;
  uint64_t id_;
  GuardedFd socket_;
  std::unique_ptr<Records> records_;  // null: the bytes are sent unencrypted
  bool readable_ = false;
  bool writable_ = false;
  bool closing_ = false;  // the peer has closed its end: a read after the last byte returns 0
  bool ended_ = false;
  int end_reason_ = 0;
};

// A frame consists of a length, a kind and that many bytes of payload.
enum class FrameKind : uint8_t {
  kMessage = 1,
  kAbort = 2,    // the sender's links failed; payload: the lost rank or -1, the cause
  kGoodbye = 3,  // the sender leaves without an error
};

struct ControlFrame {
  FrameKind kind;
  ByteView payload;  // valid until the reader's next call of space()
};

// Splits a stream of bytes into frames. An error is final.
class FrameReader {
 public:
  static constexpr size_t kHeader = sizeof(uint32_t) + sizeof(uint8_t);
  static constexpr uint32_t kLimit = 256u << 20;

  // Returns the buffer for the next bytes, after the bytes of an incomplete frame; never empty.
  std::span<std::byte> space();
  void advance(size_t size) { end_ += size; }
  // Takes the next complete frame; false if none has arrived yet.
  Result<bool> next(ControlFrame& frame);

 private:
  // The initial size of the buffer, which holds many small messages, and grows for a large message.
  static constexpr size_t kRoom = 4096;
  // The payload of the first frame in the buffer is aligned to 16 bytes.
  static constexpr size_t kFront = 64 - kHeader;

  Bytes bytes_;
  size_t begin_ = kFront;  // start of the bytes after the last frame taken
  size_t end_ = kFront;
};

// Framed control messages over a peer stream, between ranks on two hosts. Owns the peer stream and the bytes that wait
// to be written. One caller at a time; never waits.
class ControlStream {
 public:
  ControlStream(net::EventLoop& loop, int32_t peer) : peer_stream_(loop, peer, 0) {}

  PeerStream& peer_stream() { return peer_stream_; }
  // Sends a frame of two parts: writes the bytes that the socket accepts, and copies the rest to output_.
  void put(FrameKind kind, ByteView first, ByteView second = {});
  // Writes as much of output_ as the socket accepts; returns true if it accepted any bytes.
  bool flush();
  bool has_output() const { return !output_.empty(); }
  // Reads, and takes the next complete frame; false if none has arrived yet.
  Result<bool> next(ControlFrame& frame);

  bool departed = false;

 private:
  PeerStream peer_stream_;
  std::deque<Bytes> output_;
  size_t written_ = 0;  // bytes of output_.front()
  FrameReader reader_;
};

}  // namespace hvd::collectives
