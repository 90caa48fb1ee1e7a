#include "collectives/control_stream.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::collectives {

std::span<std::byte> FrameReader::space() {
  Bytes& target = in_payload_ ? frame_.payload : bytes_;
  if (in_payload_ && filled_ == target.size()) {
    // Memory grows with what arrives, not with what a header claims.
    const size_t whole = ByteReader(bytes_).get<uint32_t>();
    target.resize(std::min(whole, std::max<size_t>(filled_ * 2, 64 * 1024)));
  }
  return std::span(target).subspan(filled_);
}

Result<bool> FrameReader::advance(size_t size) {
  filled_ += size;
  ByteReader header(bytes_);
  const auto whole = header.get<uint32_t>();
  if (!in_payload_) {
    if (filled_ < kHeader) return false;
    const auto kind = header.get<uint8_t>();
    if (kind < 1 || kind > 3 || whole > kLimit) {
      return invalid_argument(cat("a frame of kind ", int{kind}, " with ", whole,
                                  " bytes is none of ours"));
    }
    frame_ = {static_cast<FrameKind>(kind), {}};
    in_payload_ = true;
    filled_ = 0;
  }
  return filled_ == whole;
}

Frame FrameReader::take() {
  in_payload_ = false;
  filled_ = 0;
  return std::move(frame_);
}

void ControlStream::put(FrameKind kind, ByteView payload) {
  ByteWriter out;
  out.put(static_cast<uint32_t>(payload.size())).put(kind).put_raw(payload);
  output_.push_back(out.take());
}

bool ControlStream::flush() {
  bool moved = false;
  while (!output_.empty()) {
    const size_t size = lane_.write_some(ByteView(output_.front()).subspan(written_));
    if (size == 0) break;
    moved = true;
    written_ += size;
    if (written_ == output_.front().size()) {
      output_.pop_front();
      written_ = 0;
    }
  }
  return moved;
}

Result<bool> ControlStream::next(Frame& frame) {
  for (;;) {
    const size_t got = lane_.read_some(reader_.space());
    if (got == 0) return false;
    HVD_ASSIGN_OR_RETURN(const bool whole, reader_.advance(got));
    if (whole) {
      frame = reader_.take();
      return true;
    }
  }
}

}  // namespace hvd::collectives
