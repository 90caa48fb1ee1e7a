// Device memory for outputs that belong to the user. NcclThread allocates it on a stream; any thread
// may return it; NcclThread frees it on a stream later. Lives as long as the process, because the
// user's outputs may outlive the job. Any thread.
#pragma once

#include <vector>

#include "base/mutex.h"
#include "horovod/plugin_framework.h"
#include "ops/nccl/library.h"

namespace hvd::ops::nccl {

class Memory {
 public:
  // The framework record that releases this memory, one per process. The plugin publishes it.
  static hvd_framework* framework();
  static Memory& of(const hvd_framework& framework) {
    return *static_cast<Memory*>(framework.context);
  }

  // Allocates `size` bytes in the order of `stream`. The device must be current.
  static Result<void*> take(const NcclApi& api, size_t size, void* stream) {
    void* memory = nullptr;
    const Status status = api.of_device(api.malloc_async(&memory, size, stream), "MallocAsync");
    if (!status.ok()) return status;
    return memory;
  }
  // Frees the returned memory in the order of `stream`. The device must be current.
  void free_returned(const NcclApi& api, void* stream) {
    std::vector<void*> returned;
    {
      const MutexLock lock(mutex_);
      returned.swap(returned_);
    }
    for (void* memory : returned) api.free_async(memory, stream);
  }

 private:
  void give_back(void* memory) {
    const MutexLock lock(mutex_);
    returned_.push_back(memory);
  }
  Mutex mutex_;
  std::vector<void*> returned_ HVD_GUARDED_BY(mutex_);
};

inline hvd_framework* Memory::framework() {
  static constexpr hvd_framework_v1 kVtable = {
      .struct_size = sizeof(hvd_framework_v1),
      .record_ready = nullptr,
      .is_ready = nullptr,
      .make_stream_wait = nullptr,
      .release_event = nullptr,
      .allocate = nullptr,
      .release =
          [](void* context, int32_t, void* memory) {
            if (memory != nullptr) static_cast<Memory*>(context)->give_back(memory);
          },
      .current_stream = nullptr};
  static hvd_framework* const kFramework = new hvd_framework{&kVtable, new Memory};
  return kFramework;
}

}  // namespace hvd::ops::nccl
