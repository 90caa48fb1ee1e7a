// Maps shared memory. Programs use the system's addresses. Tests that run all ranks as threads map
// each region at one address for all ranks, so that ThreadSanitizer sees conflicting accesses.
#pragma once

#include <cstddef>

#include "base/result.h"

namespace hvd::collectives {

class MemoryMap {
 public:
  virtual ~MemoryMap() = default;
  virtual Result<void*> map(int fd, size_t offset, size_t size);
  virtual void unmap(void* memory, size_t size);
};

}  // namespace hvd::collectives
