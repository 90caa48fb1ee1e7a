// Frames: the messages of a link between launcher and agent. A frame's header names its job, host and stream. Does not
// interpret control messages, and does no I/O. One thread at a time. DESIGN: control and store frames never wait behind
// output, and a stream sends only bytes that its receiver granted, so a stalled terminal causes neither a timeout nor
// memory growth.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"

namespace hvd::net {

constexpr uint16_t kFrameVersion = 1;
constexpr size_t kFrameHeaderSize = 36;
// The limit of a frame's payload: enough for a job's environment, but not enough for a faulty peer to
// use up memory.
constexpr size_t kMaxPayload = 16 << 20;
// The limit of a kData frame: an urgent frame waits for at most one such frame.
constexpr size_t kMaxChunk = 32 << 10;
// FrameHeader::host of a frame without a host, for example an agent's hello.
constexpr uint32_t kNoHost = 0xffffffff;

enum class FrameType : uint16_t {
  kControl = 1,  // stream 0; the payload is a message of the layer above
  kOpen = 2,     // the sender begins a stream, and grants `credit` bytes at once
  kData = 3,     // bytes of a stream, which consume credit
  kCredit = 4,   // grants `credit` more bytes; no payload
  kEnd = 5,      // end of file from the sender on this stream; no payload
  kReset = 6,    // the sender has dropped this stream in both directions; no payload
};

// On the wire, little-endian, in this order, after the magic number: version, type (16 bits each), job
// (64), generation, host, stream, credit, payload length (32 each).
struct FrameHeader {
  FrameType type = FrameType::kControl;
  uint64_t job = 0;
  uint32_t generation = 0;
  uint32_t host = kNoHost;  // host of the receiving or sending agent; agents can relay frames
  uint32_t stream = 0;
  uint32_t credit = 0;
};

struct Frame {
  FrameHeader header;
  ByteView payload;  // points into the parser until its next call
};

// Splits a stream of bytes into frames. An error is final, since later bytes cannot be trusted.
class FrameParser {
 public:
  explicit FrameParser(size_t max_payload = kMaxPayload) : max_payload_(max_payload) {}

  void feed(ByteView bytes);
  // Returns a frame, nothing while bytes are missing, or an error.
  Result<std::optional<Frame>> next();

 private:
  Status check_magic(ByteView bytes) const;

  size_t max_payload_;
  Bytes buffer_;
  size_t begin_ = 0;  // start of the bytes that are not yet parsed
  bool has_header_ = false;
  Status failure_;
};

// The priority of a frame in the send queue. Frames of equal urgency leave first in, first out.
enum class Urgency : uint8_t { kControl = 0, kStore = 1, kOutput = 2 };

// The send queue. Callers limit its size: they add only bytes for which they have credit.
class FrameWriter {
 public:
  void put(const FrameHeader& header, ByteView payload, Urgency urgency);
  bool empty() const { return queued_ == 0; }
  size_t queued() const { return queued_; }
  // Takes complete frames, the most urgent first, until they have at least `size` bytes or the queue is empty. Takes at
  // least one frame if the queue has one.
  Bytes take(size_t size);

 private:
  std::array<std::deque<Bytes>, 3> queues_;
  size_t queued_ = 0;
};

// The sender's side of a stream: the number of bytes that the receiver accepts.
class Credit {
 public:
  explicit Credit(uint32_t granted = 0) : left_(granted) {}
  // Returns false if the unused credit would exceed 32 bits, which is a defect of the peer.
  bool grant(uint32_t more);
  size_t left() const { return left_; }
  void use(size_t size);

 private:
  uint32_t left_;
};

// The receiver's side of a stream: the bytes that the peer may still send, and the consumed bytes
// that can be granted again. The window grants at least half its size at a time, not every byte.
class Window {
 public:
  explicit Window(uint32_t size) : size_(size), open_(size) {}
  // Returns false if the peer sent more bytes than it was granted.
  bool arrived(size_t size);
  // Returns the number of bytes to grant, often 0, after `size` bytes were consumed.
  uint32_t consumed(size_t size);

 private:
  uint32_t size_;
  uint32_t open_;         // granted and not yet arrived
  uint32_t pending_ = 0;  // arrived and not yet consumed
  uint32_t returnable_ = 0;
};

}  // namespace hvd::net
