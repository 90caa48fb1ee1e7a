// Where shared memory is mapped. The system's in programs; tests that run all ranks as threads
// give each the same addresses, so that ThreadSanitizer sees them meet.
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
