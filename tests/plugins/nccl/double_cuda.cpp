// The CUDA runtime's entry points over host memory. See README.md.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "ops/nccl/abi.h"
#include "plugins/nccl/double.h"
#include "plugins/nccl/double_capture.h"
#include "plugins/nccl/double_memory.h"
#include "plugins/nccl/double_process.h"

namespace hvd::test_double {

// The delay of a stream's operation, drawn from a seed: HVD_DOUBLE_SEED, 0 for no delay. Most
// operations run at once, some after later operations of other streams, and few after a long time.
class Lateness {
 public:
  Lateness() : seed_(static_cast<uint32_t>(variable("HVD_DOUBLE_SEED", 1))) {
    static std::atomic<uint32_t> streams{0};
    const auto rank = static_cast<uint32_t>(variable("HOROVOD_RANK", 0));
    std::seed_seq mixed{seed_, rank, streams.fetch_add(1)};
    random_.seed(mixed);
  }
  void wait() {
    if (seed_ == 0) return;
    const uint32_t kind = random_() % 128, drawn = random_() % 300;
    if (kind == 0) std::this_thread::sleep_for(std::chrono::microseconds(10 * drawn));
    if (kind > 96) std::this_thread::sleep_for(std::chrono::microseconds(drawn));
  }

 private:
  const uint32_t seed_;
  std::mt19937 random_;
};

struct Stream {
  explicit Stream(int of, int own = count++)
      : device(of), number(own), thread([this] { work(); }) {}
  ~Stream() {
    {
      const MutexLock lock(mutex);
      closing = true;
    }
    changed.notify_all();
    thread.join();
  }
  void add(std::function<void()> next) {
    {
      const MutexLock lock(mutex);
      if (capture != nullptr) return capture->keep(std::move(next));
      queue.push_back(std::move(next));
    }
    changed.notify_all();
  }
  void work() {
    MutexLock lock(mutex);
    for (;;) {
      while (!closing && queue.empty()) changed.wait(lock.native());
      if (queue.empty()) return;
      const std::function<void()> next = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      lateness.wait();
      next();
      lock.lock();
    }
  }

  std::shared_ptr<Capture> own_capture() {
    const MutexLock lock(mutex);
    return capture;
  }

  inline static std::atomic<int> count{0};
  const int device;
  const int number;   // number among the process's streams, in order of creation
  Lateness lateness;  // used by the stream's thread only
  Mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue HVD_GUARDED_BY(mutex);
  bool closing HVD_GUARDED_BY(mutex) = false;
  std::shared_ptr<Capture> capture HVD_GUARDED_BY(mutex);
  std::thread thread;
};

// One record of an event; streams may wait for it after the next record.
struct Record {
  void reach() {
    const MutexLock lock(mutex);
    reached = true;
    time = std::chrono::steady_clock::now();
    changed.notify_all();
  }
  void wait() {
    MutexLock lock(mutex);
    while (!reached) changed.wait(lock.native());
  }
  bool is_reached() {
    const MutexLock lock(mutex);
    return reached;
  }

  Mutex mutex;
  std::condition_variable changed;
  bool reached HVD_GUARDED_BY(mutex) = false;
  std::chrono::steady_clock::time_point time;  // constant once reached
};
struct Event {
  // The last record, or nullptr. Threads may record an event and wait for it at the same time.
  struct State {
    std::shared_ptr<Record> last;
    std::shared_ptr<Capture> capture;
  };
  Event(int device, bool has_time) : device(device), has_time(has_time) {}
  State state() {
    const MutexLock lock(mutex);
    return current;
  }
  void set(State state) {
    const MutexLock lock(mutex);
    current = std::move(state);
  }

  const int device;
  const bool has_time;
  Mutex mutex;
  State current HVD_GUARDED_BY(mutex);
};

namespace {

// As in the real library, an event lives until it is destroyed or the process ends: an event of a
// GPU that does not respond cannot be destroyed, and is not a leak.
class LiveEvents {
 public:
  void* add(int device, bool has_time) {
    const MutexLock lock(mutex_);
    return events_.emplace_back(std::make_unique<Event>(device, has_time)).get();
  }
  void remove(void* event) {
    const MutexLock lock(mutex_);
    std::erase_if(events_, [event](const auto& each) { return each.get() == event; });
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Event>> events_ HVD_GUARDED_BY(mutex_);
};

LiveEvents& live_events() {
  static auto& events = *new LiveEvents;  // threads may use these while the process ends
  return events;
}

constexpr int kOutOfMemory = 2, kInvalidDevice = 101, kInvalidHandle = 400, kNotReady = 600;
constexpr unsigned kDisableTiming = 2;
constexpr int kIllegalState = 401, kForbiddenInCapture = 900, kSpoiledCapture = 901,
              kEventOfCapture = 907, kWrongThread = 908, kDevicesUnavailable = 46;

int& current_device() {
  static thread_local int device = 0;
  return device;
}

// Like begin_call, for a function that needs a context on this thread's device.
int begin_on_device(const char* function) {
  const int error = begin_call(function);
  if (error != 0) return error;
  if (is_excluded(current_device())) return remember(kDevicesUnavailable);
  use_device(current_device());
  return 0;
}

// Like begin_call, for a function that is unsafe while another thread captures.
int begin_unsafe_call(const char* function) {
  const int error = begin_call(function);
  if (error != 0) return error;
  return Capture::allows_unsafe_call() ? 0 : remember(kForbiddenInCapture);
}

bool is_ignored_on(void* stream, const std::string& call) {
  return is_ignored(call.c_str()) ||
         is_ignored((call + "/" + std::to_string(stream_of(stream)->number)).c_str());
}

Event& event_of(void* event) { return *static_cast<Event*>(event); }

}  // namespace

Stream* stream_of(void* stream) {
  if (stream != nullptr) return static_cast<Stream*>(stream);
  static auto* const mutex = new Mutex;
  static auto* const defaults = new std::map<int, std::unique_ptr<Stream>>;
  const MutexLock lock(*mutex);
  auto& found = (*defaults)[current_device()];
  if (found == nullptr) found = std::make_unique<Stream>(current_device(), -1);
  return found.get();
}

void enqueue(void* stream, std::function<void()> work) { stream_of(stream)->add(std::move(work)); }

void set_capture(void* stream, std::shared_ptr<Capture> capture) {
  Stream& captured = *stream_of(stream);
  const MutexLock lock(captured.mutex);
  captured.capture = std::move(capture);
}

bool is_current_device(void* stream) { return stream_of(stream)->device == current_device(); }

int current_device_number() { return current_device(); }

int64_t variable(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

void log(const std::string& line) {
  static Mutex* const mutex = new Mutex;
  const char* path = std::getenv("HVD_DOUBLE_LOG");
  if (path == nullptr) return;
  const MutexLock lock(*mutex);
  std::ofstream(path, std::ios::app) << line << '\n';
}

}  // namespace hvd::test_double

using namespace hvd::test_double;
namespace abi = hvd::ops::nccl::abi;

#pragma GCC visibility push(default)
extern "C" {

int cudaGetDeviceCount(int* count) {
  if (const int error = begin_call("cudaGetDeviceCount"); error != 0) return error;
  *count = count_devices();
  return 0;
}
int cudaSetDevice(int device) {
  if (const int error = begin_call("cudaSetDevice"); error != 0) return error;
  if (is_ignored("cudaSetDevice")) return 0;
  if (device < 0 || device >= count_devices()) return remember(kInvalidDevice);
  if (is_excluded(device)) return remember(kDevicesUnavailable);
  current_device() = device;
  use_device(device);
  return 0;
}
// Fills in the name, and the UUID of the device or its MIG instance, which differs between hosts.
int cudaGetDeviceProperties(void* properties, int device) {
  if (const int error = begin_call("cudaGetDeviceProperties"); error != 0) return error;
  if (device < 0 || device >= count_devices()) return remember(kInvalidDevice);
  const char* host = std::getenv("HOROVOD_HOSTNAME");
  const uint64_t uuid[2] = {std::hash<std::string>()(host == nullptr ? "" : host),
                            static_cast<uint64_t>(number_on_host(device)) + 1};
  std::memset(properties, 0, abi::kPropertiesSize / 16);
  std::strcpy(static_cast<char*>(properties), "a GPU of the double");
  std::memcpy(static_cast<char*>(properties) + abi::kUuidOffset, uuid, sizeof uuid);
  return 0;
}
int cudaDeviceGetPCIBusId(char* text, int size, int device) {
  if (const int error = begin_call("cudaDeviceGetPCIBusId"); error != 0) return error;
  const int64_t gpu = number_on_host(device) / variable("HVD_DOUBLE_MIG", 1);
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(gpu));
  return 0;
}
int cudaGetDevice(int* device) {
  *device = current_device();
  return 0;
}
int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return 0;
}
int cudaStreamCreateWithPriority(void** stream, unsigned, int) {
  if (const int error = begin_on_device("cudaStreamCreateWithPriority"); error != 0) return error;
  *stream = new Stream(current_device());
  return 0;
}
int cudaStreamDestroy(void* stream) {
  delete static_cast<Stream*>(stream);
  return 0;
}
int cudaStreamBeginCapture(void* stream, int mode) {
  if (const int error = begin_call("cudaStreamBeginCapture"); error != 0) return error;
  if (stream_of(stream)->own_capture() != nullptr) return remember(kIllegalState);
  set_capture(stream, Capture::begin(mode, stream));
  return 0;
}
// The double makes no graph.
int cudaStreamEndCapture(void* stream, void** graph) {
  if (const int error = begin_call("cudaStreamEndCapture"); error != 0) return error;
  const std::shared_ptr<Capture> capture = stream_of(stream)->own_capture();
  if (capture == nullptr) return remember(kIllegalState);
  if (!capture->is_of_this_thread() && capture->mode() != Capture::kRelaxed)
    return remember(kWrongThread);
  *graph = nullptr;
  return capture->end() ? 0 : remember(kSpoiledCapture);
}
int cudaStreamIsCapturing(void* stream, int* status) {
  *status = stream_of(stream)->own_capture() != nullptr ? 1 : 0;
  return 0;
}
int cudaThreadExchangeStreamCaptureMode(int* mode) {
  *mode = Capture::exchange_mode(*mode);
  return 0;
}
int cudaEventCreateWithFlags(void** event, unsigned flags) {
  if (const int error = begin_on_device("cudaEventCreateWithFlags"); error != 0) return error;
  log("event");
  *event = live_events().add(current_device(), (flags & kDisableTiming) == 0);
  return 0;
}
int cudaEventDestroy(void* event) {
  live_events().remove(event);
  return 0;
}
int cudaEventRecord(void* event, void* stream) {
  if (const int error = begin_call("cudaEventRecord"); error != 0) return error;
  if (event_of(event).device != stream_of(stream)->device) return remember(kInvalidHandle);
  const auto record = std::make_shared<Record>();
  event_of(event).set({record, stream_of(stream)->own_capture()});
  enqueue(stream, [record] { record->reach(); });
  return 0;
}
int cudaEventQuery(void* event) {
  if (const int error = begin_unsafe_call("cudaEventQuery"); error != 0) return error;
  const auto [record, capture] = event_of(event).state();
  if (capture != nullptr) return remember(kEventOfCapture);
  return record != nullptr && !record->is_reached() ? remember(kNotReady) : 0;
}
int cudaEventElapsedTime(float* milliseconds, void* from, void* to) {
  if (const int error = begin_call("cudaEventElapsedTime"); error != 0) return error;
  const auto began = event_of(from).state().last, ended = event_of(to).state().last;
  const bool has_times = event_of(from).has_time && event_of(to).has_time;
  if (!has_times || began == nullptr || ended == nullptr) return remember(kInvalidHandle);
  if (!began->is_reached() || !ended->is_reached()) return remember(kNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(ended->time - began->time).count();
  return 0;
}
int cudaStreamWaitEvent(void* stream, void* event, unsigned) {
  if (const int error = begin_call("cudaStreamWaitEvent"); error != 0) return error;
  if (is_ignored_on(stream, "cudaStreamWaitEvent")) return 0;
  const auto [record, capture] = event_of(event).state();
  if (capture != nullptr) {
    capture->join(stream);
    set_capture(stream, capture);
    return 0;
  }
  if (record != nullptr) enqueue(stream, [record = record] { record->wait(); });
  return 0;
}
int cudaStreamSynchronize(void* stream) {
  if (const int error = begin_unsafe_call("cudaStreamSynchronize"); error != 0) return error;
  log("synchronize");
  if (is_ignored_on(stream, "cudaStreamSynchronize")) return 0;
  const auto record = std::make_shared<Record>();
  enqueue(stream, [record] { record->reach(); });
  record->wait();
  return 0;
}
int cudaMallocAsync(void** memory, size_t size, void* stream) {
  if (const int error = begin_on_device("cudaMallocAsync"); error != 0) return error;
  if (!is_current_device(stream)) return remember(kInvalidHandle);
  log("malloc");
  *memory = allocate(size, MemoryKind::kDevice);
  return *memory == nullptr ? remember(kOutOfMemory) : 0;
}
int cudaFreeAsync(void* memory, void* stream) {
  if (const int error = begin_call("cudaFreeAsync"); error != 0) return error;
  enqueue(stream, [memory] { release(memory); });
  log("free");
  return 0;
}
int cudaMallocManaged(void** memory, size_t size, unsigned) {
  if (const int error = begin_on_device("cudaMallocManaged"); error != 0) return error;
  *memory = allocate(size, MemoryKind::kManaged);
  return *memory == nullptr ? remember(kOutOfMemory) : 0;
}
int cudaFree(void* memory) {
  if (const int error = begin_unsafe_call("cudaFree"); error != 0) return error;
  if (memory != nullptr) release(memory);
  return 0;
}
int cudaHostAlloc(void** memory, size_t size, unsigned) {
  if (const int error = begin_on_device("cudaHostAlloc"); error != 0) return error;
  log("pin");
  *memory = allocate(size, MemoryKind::kPinned);
  return *memory == nullptr ? remember(kOutOfMemory) : 0;
}
int cudaFreeHost(void* memory) {
  log("unpin");
  return cudaFree(memory);
}
// Unpinned host memory is read and written before the call returns.
int cudaMemcpyAsync(void* to, const void* from, size_t size, int, void* stream) {
  if (const int error = begin_call("cudaMemcpyAsync"); error != 0) return error;
  const int device = stream_of(stream)->device;
  const bool stages = !is_of_double(from) && is_of_double(to);
  auto staged = std::make_shared<std::vector<std::byte>>();
  const auto* bytes = static_cast<const std::byte*>(from);
  if (stages) staged->assign(bytes, bytes + size);
  auto reads = std::make_shared<const MemoryUse>(from, "cudaMemcpyAsync", device);
  auto writes = std::make_shared<const MemoryUse>(to, "cudaMemcpyAsync", device);
  enqueue(stream, [=]() mutable {
    const bool is_there = reads->check() && writes->check();
    if (is_there) std::memcpy(for_kernel(to), stages ? staged->data() : for_kernel(from), size);
    reads.reset();
    writes.reset();
  });
  if (is_of_double(from) && !is_of_double(to)) return cudaStreamSynchronize(stream);
  return 0;
}
int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  if (const int error = begin_call("cudaLaunchHostFunc"); error != 0) return error;
  enqueue(stream, [=] {
    const HostFunction now;
    if (!has_kernel_failed()) function(argument);
  });
  return 0;
}
const char* cudaGetErrorString(int error) {
  switch (error) {
    case kOutOfMemory:
      return "out of memory";
    case kInvalidDevice:
      return "invalid device ordinal";
    case kIllegalAddress:
      return "an illegal memory access was encountered";
    case kDevicesUnavailable:
      return "CUDA-capable device(s) is/are busy or unavailable";
    default:
      return "an error of the double";
  }
}

}  // extern "C"
#pragma GCC visibility pop
