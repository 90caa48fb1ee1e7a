// The mappings of the shared heaps of the other ranks on this host. The mesh owns PeerHeaps. Lives on
// the progress thread.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "base/fork_guard.h"
#include "collectives/shm/memory_map.h"
#include "collectives/shm/shared_heap.h"

namespace hvd::collectives {

class PeerHeaps {
 public:
  // `files` holds the file of each local rank; a closed descriptor for a rank without a heap.
  PeerHeaps(std::vector<UniqueFd> files, MemoryMap& map);
  ~PeerHeaps();
  PeerHeaps(const PeerHeaps&) = delete;
  PeerHeaps& operator=(const PeerHeaps&) = delete;

  // Returns the address of `bytes` of another rank's memory. The block stays mapped, unless it is
  // the least recently used of kMostBlocks blocks.
  Result<std::byte*> reach(size_t local, const SharedHeap::Place& place, size_t bytes);

 private:
  struct Block {
    std::byte* memory;
    uint64_t size;
    uint64_t last_use;
  };
  struct Heap {
    GuardedFd file;
    uint64_t size = 0;
    std::map<uint64_t, Block> blocks;  // by offset in the file
  };
  void forget_oldest(Heap& heap);

  std::vector<Heap> heaps_;
  MemoryMap& map_;
  uint64_t uses_ = 0;
};

}  // namespace hvd::collectives
