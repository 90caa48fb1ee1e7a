#include "collectives/memory_map.h"

#include <sys/mman.h>

#include <cerrno>

namespace hvd::collectives {
namespace {

class SystemMap : public MemoryMap {
 public:
  Result<void*> map(int fd, size_t offset, size_t size) override {
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                          static_cast<off_t>(offset));
    if (memory == MAP_FAILED) return system_error("cannot map shared memory", errno);
    // A forked child must not keep it, nor touch what belongs to its parent.
    ::madvise(memory, size, MADV_DONTFORK);
    return memory;
  }
  void unmap(void* memory, size_t size) override { ::munmap(memory, size); }
};

}  // namespace

MemoryMap& MemoryMap::system() {
  static SystemMap map;
  return map;
}

}  // namespace hvd::collectives
