// Maps shared memory for SharedRegion and PeerHeaps by mmap. Tests that run all ranks as threads override
// map(), and map each region at one address for all ranks, so that ThreadSanitizer sees conflicting accesses.
#pragma once

#include <cstddef>

#include "base/result.h"

namespace hvd::collectives {

class MemoryMap {
 public:
  virtual ~MemoryMap() = default;
  // Maps `size` bytes of `fd` from `offset` on, for reading and writing. The caller unmaps the bytes.
  virtual Result<void*> map(int fd, size_t offset, size_t size);
  virtual void unmap(void* memory, size_t size);
};

}  // namespace hvd::collectives
