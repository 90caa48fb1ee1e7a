// Owns the memory of an output that belongs to the runtime: host memory, or device memory, which the
// framework releases. Any thread.
#pragma once

#include <cstddef>
#include <memory>

#include "horovod/plugin_framework.h"

namespace hvd::runtime {

struct OutputRelease {
  const hvd_framework* framework = nullptr;  // nullptr: host memory
  int32_t device = HVD_CPU;
  void operator()(std::byte* memory) const {
    if (framework == nullptr) {
      delete[] memory;
    } else {
      framework->vtable->release(framework->context, device, memory);
    }
  }
};
using OutputMemory = std::unique_ptr<std::byte, OutputRelease>;

}  // namespace hvd::runtime
