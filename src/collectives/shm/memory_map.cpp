#include "collectives/shm/memory_map.h"

#include <sys/mman.h>

#include <cerrno>

namespace hvd::collectives {

Result<void*> MemoryMap::map(int fd, size_t offset, size_t size) {
  void* memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (memory == MAP_FAILED) return system_error("cannot map shared memory", errno);
  // A forked child must not keep the mapping, since the memory belongs to its parent.
  ::madvise(memory, size, MADV_DONTFORK);
  return memory;
}

void MemoryMap::unmap(void* memory, size_t size) { ::munmap(memory, size); }

}  // namespace hvd::collectives
