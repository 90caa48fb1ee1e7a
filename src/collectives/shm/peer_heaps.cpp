#include "collectives/shm/peer_heaps.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace hvd::collectives {
namespace {

// Maximum number of mapped blocks per peer, more than one batch may use.
constexpr size_t kMostBlocks = 1024;

// Returns the size of a file, or 0 if the file could shrink below its mapping.
uint64_t sealed_size(int file) {
  struct stat info {};
  const int seals = ::fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(file, &info) != 0) return 0;
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace

PeerHeaps::PeerHeaps(std::vector<UniqueFd> files, MemoryMap& map) : map_(map) {
  for (UniqueFd& file : files) {
    Heap heap;
    heap.size = file ? sealed_size(file.get()) : 0;
    heap.file = GuardedFd(std::move(file));
    heaps_.push_back(std::move(heap));
  }
}

PeerHeaps::~PeerHeaps() {
  for (Heap& heap : heaps_) {
    for (auto& [at, block] : heap.blocks) map_.unmap(block.memory, block.size);
  }
}

Result<std::byte*> PeerHeaps::reach(size_t local, const SharedHeap::Place& place, size_t bytes) {
  Heap& heap = heaps_[local];
  if (place.size == 0 || place.offset >= place.size || bytes > place.size - place.offset ||
      place.block > heap.size || place.size > heap.size - place.block) {
    return invalid_argument("a peer names shared memory that it does not have");
  }
  auto found = heap.blocks.find(place.block);
  if (found == heap.blocks.end()) {
    if (heap.blocks.size() >= kMostBlocks) forget_oldest(heap);
    HVD_ASSIGN_OR_RETURN(void* memory, map_.map(heap.file.get(), place.block, place.size));
    found = heap.blocks.emplace(place.block, Block{static_cast<std::byte*>(memory), place.size, 0})
                .first;
  }
  if (found->second.size != place.size) {
    return invalid_argument("a peer says two things of the same shared memory");
  }
  found->second.last_use = ++uses_;
  return found->second.memory + place.offset;
}

void PeerHeaps::forget_oldest(Heap& heap) {
  const auto oldest = std::min_element(
      heap.blocks.begin(), heap.blocks.end(),
      [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
  map_.unmap(oldest->second.memory, oldest->second.size);
  heap.blocks.erase(oldest);
}

}  // namespace hvd::collectives
