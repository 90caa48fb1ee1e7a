// Framed messages over a lane: what one rank has to tell another between hosts. Frames are a
// length, a kind and that many bytes.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "collectives/lane.h"

namespace hvd::collectives {

enum class FrameKind : uint8_t {
  kMessage = 1,
  kAbort = 2,    // the sender's links have failed; why
  kGoodbye = 3,  // the sender leaves in good order
};

struct Frame {
  FrameKind kind;
  Bytes payload;
};

// Takes bytes as they come and yields whole frames. An error is final.
class FrameReader {
 public:
  static constexpr size_t kHeader = sizeof(uint32_t) + sizeof(uint8_t);
  static constexpr uint32_t kLimit = 256u << 20;

  // Where to put the next bytes: never more than the frame at hand needs.
  std::span<std::byte> space();
  // After `size` bytes were put there; true when a frame is whole.
  Result<bool> advance(size_t size);
  Frame take();

 private:
  Bytes bytes_ = Bytes(kHeader);
  size_t filled_ = 0;
  bool in_payload_ = false;
  Frame frame_{FrameKind::kMessage, {}};
};

class ControlStream {
 public:
  ControlStream(net::DataLoop& loop, int32_t peer) : lane_(loop, peer, 0) {}

  Lane& lane() { return lane_; }
  void put(FrameKind kind, ByteView payload);
  // Writes what can be written; true when anything moved.
  bool flush();
  bool has_output() const { return !output_.empty(); }
  // The next whole frame, if there is one.
  Result<bool> next(Frame& frame);

  bool departed = false;

 private:
  Lane lane_;
  std::deque<Bytes> output_;
  size_t written_ = 0;  // of the first
  FrameReader reader_;
};

}  // namespace hvd::collectives
