#include "collectives/mesh/control_stream.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace hvd::collectives {

std::span<std::byte> FrameReader::space() {
  const size_t kept = end_ - begin_;
  if (kept == 0 || begin_ > kFront) {
    if (kept > 0) std::memmove(bytes_.data() + kFront, bytes_.data() + begin_, kept);
    begin_ = kFront;
    end_ = kFront + kept;
  }
  // Memory grows with the received bytes, not with the size that a header claims.
  if (bytes_.empty())
    bytes_.resize(kFront + kRoom);
  else if (end_ == bytes_.size())
    bytes_.resize(kFront + 2 * kept);
  return std::span(bytes_).subspan(end_);
}

Result<bool> FrameReader::next(ControlFrame& frame) {
  if (end_ - begin_ < kHeader) return false;
  ByteReader header(ByteView(bytes_).subspan(begin_, kHeader));
  const auto whole = header.get<uint32_t>();
  const auto kind = header.get<uint8_t>();
  if (kind < 1 || kind > 3 || whole > kLimit) {
    return invalid_argument(
        cat("a frame of kind ", int{kind}, " with ", whole, " bytes is none of ours"));
  }
  if (end_ - begin_ - kHeader < whole) return false;
  frame = {static_cast<FrameKind>(kind), ByteView(bytes_).subspan(begin_ + kHeader, whole)};
  begin_ += kHeader + whole;
  return true;
}

void ControlStream::put(FrameKind kind, ByteView first, ByteView second) {
  ByteWriter header;
  header.put(static_cast<uint32_t>(first.size() + second.size())).put(kind);
  const ByteView parts[] = {header.view(), first, second};
  size_t written = output_.empty() ? peer_stream_.write_parts(parts) : 0;
  Bytes rest;
  for (const ByteView part : parts) {
    const size_t gone = std::min(written, part.size());
    written -= gone;
    rest.insert(rest.end(), part.begin() + static_cast<ptrdiff_t>(gone), part.end());
  }
  if (rest.empty()) return;
  output_.push_back(std::move(rest));
  flush();
}

bool ControlStream::flush() {
  bool moved = false;
  while (!output_.empty()) {
    const size_t size = peer_stream_.write_some(ByteView(output_.front()).subspan(written_));
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

Result<bool> ControlStream::next(ControlFrame& frame) {
  for (;;) {
    HVD_ASSIGN_OR_RETURN(const bool whole, reader_.next(frame));
    if (whole) return true;
    if (!peer_stream_.may_read()) return false;
    const size_t got = peer_stream_.read_once(reader_.space());
    if (got == 0) return false;
    reader_.advance(got);
  }
}

}  // namespace hvd::collectives
