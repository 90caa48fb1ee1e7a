#include "launcher/protocol/chunk_table.h"

#include <algorithm>
#include <utility>

namespace hvd::launcher {

ChunkTable::ChunkTable(std::vector<PackageFile> files) : files_(std::move(files)) {
  uint64_t end = 0;
  for (const PackageFile& file : files_) {
    const uint64_t chunks = file.size / kChunkSize + (file.size % kChunkSize == 0 ? 0 : 1);
    end += std::max<uint64_t>(chunks, 1);
    ends_.push_back(end);
  }
}

ChunkTable::Place ChunkTable::at(uint64_t number) const {
  const auto file = static_cast<size_t>(std::ranges::upper_bound(ends_, number) - ends_.begin());
  Place place{.file = file};
  place.offset = (number - (file == 0 ? 0 : ends_[file - 1])) * kChunkSize;
  place.size = std::min<uint64_t>(kChunkSize, files_[file].size - place.offset);
  return place;
}

}  // namespace hvd::launcher
