// Frames of a control stream, cut at every offset.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "collectives/mesh/peer_stream.h"
#include "fuzz/target.h"

using hvd::collectives::ControlFrame;
using hvd::collectives::FrameReader;

namespace {

// Appends the sizes of the complete frames; returns false after an error.
bool take_all(FrameReader& reader, std::vector<size_t>* sizes) {
  ControlFrame frame{};
  for (;;) {
    const auto whole = reader.next(frame);
    if (whole.ok() && !whole.value()) return true;
    sizes->push_back(whole.ok() ? frame.payload.size() : SIZE_MAX);
    if (!whole.ok()) return false;
  }
}

// Feeds at most `step` bytes at a time. Returns the sizes of the frames, and whether an error ended them.
std::vector<size_t> read_all(hvd::ByteView bytes, size_t step) {
  FrameReader reader;
  std::vector<size_t> sizes;
  while (!bytes.empty()) {
    const auto space = reader.space();
    if (space.empty()) std::abort();
    const size_t part = std::min({space.size(), bytes.size(), step});
    std::memcpy(space.data(), bytes.data(), part);
    bytes = bytes.subspan(part);
    reader.advance(part);
    if (!take_all(reader, &sizes)) break;
  }
  return sizes;
}

}  // namespace

HVD_FUZZ_TARGET(control_frame) {
  if (read_all(bytes, SIZE_MAX) != read_all(bytes, 1)) std::abort();
}
