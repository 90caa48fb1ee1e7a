// Frames of a control stream, cut at every place.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "collectives/control_stream.h"

using hvd::collectives::Frame;
using hvd::collectives::FrameReader;

namespace {

// Feeds at most `step` bytes at a time; the sizes of the frames, and whether it ended in an error.
std::vector<size_t> read_all(hvd::ByteView bytes, size_t step) {
  FrameReader reader;
  std::vector<size_t> sizes;
  while (!bytes.empty()) {
    const auto space = reader.space();
    if (space.empty()) std::abort();
    const size_t part = std::min({space.size(), bytes.size(), step});
    std::memcpy(space.data(), bytes.data(), part);
    bytes = bytes.subspan(part);
    const auto whole = reader.advance(part);
    if (!whole.ok()) {
      sizes.push_back(SIZE_MAX);
      break;
    }
    if (whole.value()) sizes.push_back(reader.take().payload.size());
  }
  return sizes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const hvd::ByteView bytes(reinterpret_cast<const std::byte*>(data), size);
  if (read_all(bytes, SIZE_MAX) != read_all(bytes, 1)) std::abort();
  return 0;
}
