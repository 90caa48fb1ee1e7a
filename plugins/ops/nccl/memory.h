// Memory for the user's outputs: on the device, or on the host if the device is full. Also the events for which the
// user's streams wait. NcclThread allocates and frees memory in the order of a stream; any thread may return memory.
// Lives as long as the process, because the user's outputs may outlive the job. Any thread.
#pragma once

#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "horovod/plugin_framework.h"
#include "ops/nccl/library.h"

namespace hvd::ops::nccl {

// Events for the begins and ends of batches on one stream, used in turn. A ring reuses no event before it has kEvents:
// a stream that starts to wait for an event after its reuse waits for a later batch.
struct EventRing {
  static constexpr size_t kEvents = 128;
  explicit EventRing(int of) : device(of) {}
  // Returns an event to record on the stream. The device must be current.
  Result<void*> take(const NcclApi& api) {
    void* event = nullptr;
    if (made.size() < kEvents || free.empty()) {
      HVD_RETURN_IF_ERROR(api.of_device(api.event_create_with_flags(&event, 0), "EventCreate"));
      made.push_back(event);
    } else {
      event = free.front();
      free.pop_front();
    }
    return event;
  }
  void give(void* event) { free.push_back(event); }

  const int device;
  bool is_lent = true;  // guarded by Memory::mutex_
  std::vector<void*> made;
  std::deque<void*> free;
};

class Memory {
 public:
  // Returns the process's framework record, which releases this memory. The plugin publishes the record.
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
  // Like take, for an output. If the device is full, returns pinned host memory, to which kernels can write: with an
  // error, this rank would fail the whole job. The framework then copies the output, possibly to cached device memory.
  Result<void*> take_output(const NcclApi& api, size_t size, void* stream) {
    void* memory = nullptr;
    const int error = api.malloc_async(&memory, size, stream);
    if (error == 0) return memory;
    if (api.get_last_device_error != nullptr) api.get_last_device_error();
    const bool may_pin = error == abi::kOutOfMemory && api.free_host != nullptr;
    if (!may_pin || api.host_alloc == nullptr || api.host_alloc(&memory, size, 0) != 0) {
      return api.of_device(error, "MallocAsync");
    }
    const MutexLock lock(mutex_);
    pinned_.insert(memory);
    return memory;
  }
  bool is_pinned(void* memory) {
    const MutexLock lock(mutex_);
    return pinned_.contains(memory);
  }
  // Frees the returned memory in the order of `stream`. The device must be current.
  void free_returned(const NcclApi& api, void* stream) {
    std::vector<void*> returned, pinned;
    {
      const MutexLock lock(mutex_);
      for (void* memory : returned_)
        (pinned_.erase(memory) > 0 ? pinned : returned).push_back(memory);
      returned_.clear();
    }
    for (void* memory : returned) api.free_async(memory, stream);
    for (void* memory : pinned) api.free_host(memory);
  }
  // Lends a ring of events of a device to one stream. The ring outlives the stream, because a user's stream may wait
  // for its events later.
  EventRing* take_ring(const NcclApi& api, int device) {
    const MutexLock lock(mutex_);
    wait_ = api.stream_wait_event;
    forget_error_ = api.get_last_device_error;
    for (EventRing& ring : rings_) {
      if (ring.device != device || std::exchange(ring.is_lent, true)) continue;
      ring.free.assign(ring.made.begin(), ring.made.end());  // also those of failed batches
      return &ring;
    }
    return &rings_.emplace_back(device);
  }
  void give_ring(EventRing* ring) {
    const MutexLock lock(mutex_);
    ring->is_lent = false;
  }

 private:
  int make_wait(void* stream, void* event) {
    abi::StreamWaitEvent* wait = nullptr;
    abi::GetLastDeviceError* forget_error = nullptr;
    {
      const MutexLock lock(mutex_);
      wait = wait_;
      forget_error = forget_error_;
    }
    if (wait(stream, event, 0) == 0) return HVD_OK;
    // Clears CUDA's last error: otherwise the framework would raise it at its next kernel.
    if (forget_error != nullptr) forget_error();
    return HVD_INTERNAL;
  }
  void give_back(void* memory) {
    const MutexLock lock(mutex_);
    returned_.push_back(memory);
  }
  Mutex mutex_;
  std::vector<void*> returned_ HVD_GUARDED_BY(mutex_);
  std::set<void*> pinned_ HVD_GUARDED_BY(mutex_);  // outputs in host memory
  std::deque<EventRing> rings_ HVD_GUARDED_BY(mutex_);
  abi::StreamWaitEvent* wait_ HVD_GUARDED_BY(mutex_) = nullptr;
  abi::GetLastDeviceError* forget_error_ HVD_GUARDED_BY(mutex_) = nullptr;
};

inline hvd_framework* Memory::framework() {
  static constexpr hvd_framework_v1 kVtable = {
      .struct_size = sizeof(hvd_framework_v1),
      .record_ready = nullptr,
      .is_ready = nullptr,
      .make_stream_wait =
          [](void* context, int32_t, void* stream, void* event) {
            return static_cast<Memory*>(context)->make_wait(stream, event);
          },
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
