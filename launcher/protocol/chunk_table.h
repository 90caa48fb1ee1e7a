// The files of an environment as one sequence of numbered chunks, in the order of its list (package_list.h). A chunk
// lies within one file; an empty file has one empty chunk. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "launcher/protocol/package_list.h"

namespace hvd::launcher {

// A host sends a chunk to the next one when it is whole: of 32 hosts, the last one is 31 chunks behind.
inline constexpr size_t kChunkSize = 128 << 10;

class ChunkTable {
 public:
  explicit ChunkTable(std::vector<PackageFile> files);

  // The number of chunks.
  uint64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  const std::vector<PackageFile>& files() const { return files_; }
  struct Place {
    size_t file = 0;  // index among files()
    uint64_t offset = 0;
    size_t size = 0;
  };
  // `number` is less than size().
  Place at(uint64_t number) const;

 private:
  std::vector<PackageFile> files_;
  std::vector<uint64_t> ends_;  // for each file, the number after its last chunk
};

}  // namespace hvd::launcher
