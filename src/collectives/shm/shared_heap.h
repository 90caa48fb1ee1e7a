// Memory of this process that the other ranks of its host can map, for hvd_alloc. It is one sparse
// file without a name. A block's offset in the file is never reused, so that it identifies the block
// even after it is freed. One per process: it may exist before the first runtime, and outlives each
// runtime. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "base/fork_guard.h"
#include "base/mutex.h"
#include "base/result.h"

namespace hvd::collectives {

class SharedHeap {
 public:
  SharedHeap() = default;
  // Blocks that nobody released stay mapped.
  ~SharedHeap() = default;
  SharedHeap(const SharedHeap&) = delete;
  SharedHeap& operator=(const SharedHeap&) = delete;

  // All of it is there at once: what the host cannot give is an error here and not a signal later.
  Result<void*> allocate(size_t size);
  // Gives the memory back at once. A peer's mapping keeps addresses, and no memory.
  Status release(void* memory);

  // A part of the file: of the block at `block`, `size` bytes long, what begins at `offset`.
  struct Place {
    uint64_t block;
    uint64_t size;
    uint64_t offset;
  };
  // Where all of this memory lies; nothing when it is not in one block.
  std::optional<Place> find(const void* memory, size_t size) const;

  // The file, sealed, for peers to have; an error in a forked child, whose memory is its parent's.
  Result<int> file();

 private:
  struct Block {
    uint64_t at;    // in the file
    uint64_t size;  // as mapped
  };
  Status open() HVD_REQUIRES(mutex_);

  mutable Mutex mutex_;
  GuardedFd file_ HVD_GUARDED_BY(mutex_);
  int owner_ HVD_GUARDED_BY(mutex_) = 0;
  uint64_t end_ HVD_GUARDED_BY(mutex_) = 0;   // of the file
  uint64_t next_ HVD_GUARDED_BY(mutex_) = 0;  // where the next block goes
  std::map<uintptr_t, Block> blocks_ HVD_GUARDED_BY(mutex_);
  std::atomic<size_t> block_count_{0};  // lets find() skip the lock where nobody uses this
};

}  // namespace hvd::collectives
