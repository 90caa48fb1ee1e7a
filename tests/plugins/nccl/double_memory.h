// Memory of the double: pages that are mapped twice. Kernels use the second mapping, so that the first one,
// whose addresses the program knows, can be closed for the CPU. No address is used twice. Any thread.
#pragma once

#include <cstddef>
#include <memory>

#include "plugins/nccl/double.h"

namespace hvd::test_double {

enum class MemoryKind {
  kDevice,   // the CPU never reads or writes it
  kManaged,  // the CPU may, while no operation refers to it
  kPinned    // the CPU may at any time
};

// Full of 0xa5. nullptr: more than HVD_DOUBLE_MEMORY bytes would be in use, or HVD_DOUBLE_PINNED of
// pinned memory.
void* allocate(size_t size, MemoryKind kind);
// Nothing may read or write the memory afterwards.
void release(void* memory);
bool is_of_double(const void* address);
// The same bytes for a kernel. Other memory has one address only.
std::byte* for_kernel(const void* address);

struct Block;
// An operation that refers to memory, from its submission to its end.
class MemoryUse {
 public:
  MemoryUse(const void* address, const char* operation, int device);
  ~MemoryUse();
  MemoryUse(const MemoryUse&) = delete;
  // Whether the memory is still there; a finding otherwise.
  bool check() const;

 private:
  std::shared_ptr<Block> block_;  // nullptr: memory that is not the double's
  const char* const operation_;
};

}  // namespace hvd::test_double
