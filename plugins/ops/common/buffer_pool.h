// A pool of host buffers. Batches of the MPI backend reuse the buffers, which saves page faults. Lives
// on the progress thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace hvd::ops {

struct Buffer {
  std::unique_ptr<std::byte[]> bytes;  // nullptr: the allocation failed
  size_t size = 0;
};

class BufferPool {
 public:
  // Returns a buffer of at least `size` uninitialised bytes.
  Buffer take(size_t size) {
    const auto fits = std::find_if(spare_.begin(), spare_.end(), [size](const Buffer& one) {
      return one.size >= size && one.size / 4 <= size;
    });
    if (fits == spare_.end()) {
      return {std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[size + 1]), size};
    }
    Buffer taken = std::move(*fits);
    spare_.erase(fits);
    return taken;
  }
  void give(Buffer buffer) {
    if (buffer.bytes == nullptr) return;
    if (spare_.size() == kKept) spare_.erase(spare_.begin());
    spare_.push_back(std::move(buffer));
  }

 private:
  static constexpr size_t kKept = 4;
  std::vector<Buffer> spare_;  // the oldest first
};

}  // namespace hvd::ops
