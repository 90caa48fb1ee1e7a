// Framed control messages over a peer stream, between ranks on two hosts. A frame is a length, a
// kind and that many bytes of payload. Owns the peer stream and the bytes that wait to be written.
// RemoteLinks owns and calls ControlStream, one caller at a time; never waits.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "collectives/mesh/peer_stream.h"

namespace hvd::collectives {

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
