// The mappings of the shared heaps of the other ranks on this host. The mesh owns it. Lives on the
// progress thread.
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
  // The file of each rank of the host, in their order; none on a rank without a heap.
  PeerHeaps(std::vector<UniqueFd> files, MemoryMap& map);
  ~PeerHeaps();
  PeerHeaps(const PeerHeaps&) = delete;
  PeerHeaps& operator=(const PeerHeaps&) = delete;

  // Another rank's memory; it stays mapped here, until very many others were reached after it.
  Result<std::byte*> reach(size_t local, const SharedHeap::Place& place);

 private:
  struct Block {
    std::byte* memory;
    uint64_t size;
    uint64_t last_use;
  };
  struct Heap {
    GuardedFd file;
    uint64_t size = 0;
    std::map<uint64_t, Block> blocks;  // by their place in the file
  };
  void forget_oldest(Heap& heap);

  std::vector<Heap> heaps_;
  MemoryMap& map_;
  uint64_t uses_ = 0;
};

}  // namespace hvd::collectives
