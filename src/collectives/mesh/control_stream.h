// Framed control messages over a peer stream, between ranks on two hosts. Frames are a
// length, a kind and that many bytes.
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
  kAbort = 2,    // the sender's links have failed: the lost rank or -1, and why
  kGoodbye = 3,  // the sender leaves in good order
};

struct Frame {
  FrameKind kind;
  ByteView payload;  // valid until the reader's next call of space()
};

// Takes bytes as they come and yields whole frames. An error is final.
class FrameReader {
 public:
  static constexpr size_t kHeader = sizeof(uint32_t) + sizeof(uint8_t);
  static constexpr uint32_t kLimit = 256u << 20;

  // Where to put the next bytes, behind those that belong to no frame yet; never empty.
  std::span<std::byte> space();
  void advance(size_t size) { end_ += size; }
  // The next whole frame of what is there.
  Result<bool> next(Frame& frame);

 private:
  // At first: many small messages come at a time, and a large one in one piece once there is room.
  static constexpr size_t kRoom = 4096;
  // A first frame's payload lies at a multiple of 16 bytes.
  static constexpr size_t kFront = 64 - kHeader;

  Bytes bytes_;
  size_t begin_ = kFront;  // of what was not taken out
  size_t end_ = kFront;
};

class ControlStream {
 public:
  ControlStream(net::DataLoop& loop, int32_t peer) : peer_stream_(loop, peer, 0) {}

  PeerStream& peer_stream() { return peer_stream_; }
  // A frame of two parts. Writes it at once as far as that goes, and keeps a copy of the rest.
  void put(FrameKind kind, ByteView first, ByteView second = {});
  // Writes what can be written; true when anything moved.
  bool flush();
  bool has_output() const { return !output_.empty(); }
  // The next whole frame, if there is one.
  Result<bool> next(Frame& frame);

  bool departed = false;

 private:
  PeerStream peer_stream_;
  std::deque<Bytes> output_;
  size_t written_ = 0;  // of the first
  FrameReader reader_;
};

}  // namespace hvd::collectives
