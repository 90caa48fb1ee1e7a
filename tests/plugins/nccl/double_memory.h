// Memory of the double: pages with two mappings. Kernels use the second mapping, so that the CPU can lose access to the
// first, which the program uses. No address is used twice. Any thread may call.
#pragma once

#include <cstddef>
#include <memory>

#include "plugins/nccl/double.h"

namespace hvd::test_double {

enum class MemoryKind {
  kDevice,   // the CPU never accesses the memory
  kManaged,  // CPU access while no operation uses the memory
  kPinned    // CPU access at any time
};

// Allocates memory full of 0xa5. Returns nullptr if more than HVD_DOUBLE_MEMORY bytes would be in
// use, or HVD_DOUBLE_PINNED of pinned memory.
void* allocate(size_t size, MemoryKind kind);
// Frees memory that no operation uses.
void release(void* memory);
bool is_of_double(const void* address);
// Returns the kernels' address of the same bytes. Other memory has only one address.
std::byte* for_kernel(const void* address);

struct Block;
// An operation that refers to memory, from its submission to its end.
class MemoryUse {
 public:
  MemoryUse(const void* address, const char* operation, int device);
  ~MemoryUse();
  MemoryUse(const MemoryUse&) = delete;
  // Returns whether the memory is still allocated; adds a finding otherwise.
  bool check() const;

 private:
  std::shared_ptr<Block> block_;  // nullptr: not memory of the double
  const char* const operation_;
};

}  // namespace hvd::test_double
