// Memory of this process that the other ranks of its host can map, for hvd_alloc: one sparse file
// without a name. The offset of a block in the file is never reused, so that it identifies the block
// even after the block is freed. A process has one SharedHeap, which may exist before the first runtime
// and outlives each runtime. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/fork_guard.h"
#include "base/mutex.h"
#include "base/result.h"
#include "collectives/shm/shared_region.h"

namespace hvd::collectives {

class SharedHeap {
 public:
  SharedHeap() = default;
  // Leaves unreleased blocks mapped.
  ~SharedHeap() = default;
  SharedHeap(const SharedHeap&) = delete;
  SharedHeap& operator=(const SharedHeap&) = delete;

  // Reserves all pages at once, so that a lack of memory is an error here and not a signal later.
  Result<void*> allocate(size_t size);
  // Returns the memory to the system at once. A peer's mapping stays, without memory.
  Status release(void* memory);

  // A place in the file: `offset` bytes into the block that starts at `block` and has `size` bytes.
  struct Place {
    uint64_t block;
    uint64_t size;
    uint64_t offset;
  };
  // Returns the place of this memory; nullopt if no single block contains it.
  std::optional<Place> find(const void* memory, size_t size) const;

  // Returns the sealed file, which peers may map; an error in a forked child, since the memory
  // belongs to its parent.
  Result<int> file();

 private:
  struct Block {
    uint64_t at;    // offset in the file
    uint64_t size;  // mapped bytes
  };
  Status open() HVD_REQUIRES(mutex_);

  mutable Mutex mutex_;
  GuardedFd file_ HVD_GUARDED_BY(mutex_);
  int owner_ HVD_GUARDED_BY(mutex_) = 0;
  uint64_t end_ HVD_GUARDED_BY(mutex_) = 0;   // size of the file
  uint64_t next_ HVD_GUARDED_BY(mutex_) = 0;  // offset of the next block
  std::map<uintptr_t, Block> blocks_ HVD_GUARDED_BY(mutex_);
  std::atomic<size_t> block_count_{0};  // lets find() skip the lock if no block exists
};

// The mappings of the shared heaps of the other ranks on this host. The mesh owns PeerHeaps. Lives on
// the progress thread.
class PeerHeaps {
 public:
  // `files` holds the file of each local rank; a closed descriptor for a rank without a heap.
  PeerHeaps(std::vector<UniqueFd> files, MemoryMap& map);
  ~PeerHeaps();
  PeerHeaps(const PeerHeaps&) = delete;
  PeerHeaps& operator=(const PeerHeaps&) = delete;

  // Returns the address of `bytes` of another rank's memory. The block stays mapped until kMostBlocks other blocks of
  // the same rank have been used.
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
