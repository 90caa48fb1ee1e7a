// The functions of the C ABI for ranks, operations, memory and observation. No exception leaves these functions.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/clock.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/kernels/digest.h"
#include "collectives/shm/shared_heap.h"
#include "horovod/horovod.h"
#include "horovod/version.h"
#include "runtime/capi/api_call.h"
#include "runtime/capi/capability.h"

constinit hvd::runtime::api::ApiState hvd::runtime::api::state;

hvd::collectives::SharedHeap& hvd::runtime::api::heap() {
  std::call_once(state.heap_made, [] { state.heap = new collectives::SharedHeap; });
  return *state.heap;
}

namespace {

using hvd::Status;
using hvd::runtime::Runtime;
using hvd::runtime::api::ApiCall;
using hvd::runtime::api::copy_sized;
using hvd::runtime::api::guarded;
using hvd::runtime::api::heap;
using hvd::runtime::api::state;
using hvd::runtime::api::with_runtime;

hvd::Deadline deadline_of(double seconds) {
  return seconds < 0 ? hvd::Deadline::never() : hvd::Deadline::after_seconds(seconds);
}

int32_t identity_number(int32_t hvd::runtime::Identity::*field) {
  const ApiCall call;
  if (!state.initialized.load() || call.identity() == nullptr) return -1;
  return call.identity()->*field;
}

// `wait` returns the status of completed work, or nullopt.
template <typename Wait>
int wait_by(char* error, size_t error_size, Wait&& wait) {
  bool in_progress = false;
  const int code = with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    const auto status = wait(runtime);
    in_progress = !status.has_value();
    return in_progress ? Status() : *status;
  });
  return in_progress ? HVD_IN_PROGRESS : code;
}

int submit_message(int32_t op, const hvd_message* message, hvd_handle* handle, char* error,
                   size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    if (handle == nullptr) return hvd::invalid_argument("the handle's address is NULL");
    hvd_message whole;
    HVD_RETURN_IF_ERROR(copy_sized(message, sizeof message->struct_size, &whole));
    return runtime.submit_message(op, whole, handle);
  });
}

}  // namespace

extern "C" {

const char* hvd_version(void) { return HVD_VERSION; }

int32_t hvd_rank(void) { return identity_number(&hvd::runtime::Identity::rank); }
int32_t hvd_size(void) { return identity_number(&hvd::runtime::Identity::size); }
int32_t hvd_local_rank(void) { return identity_number(&hvd::runtime::Identity::local_rank); }
int32_t hvd_local_size(void) { return identity_number(&hvd::runtime::Identity::local_size); }
int32_t hvd_cross_rank(void) { return identity_number(&hvd::runtime::Identity::cross_rank); }
int32_t hvd_cross_size(void) { return identity_number(&hvd::runtime::Identity::cross_size); }

int32_t hvd_is_homogeneous(void) {
  const ApiCall call;
  if (!state.initialized.load() || call.identity() == nullptr) return -1;
  return call.identity()->is_homogeneous ? 1 : 0;
}

int hvd_submit(const hvd_submission* submission, hvd_handle* handle, char* error,
               size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    if (handle == nullptr) return hvd::invalid_argument("the handle's address is NULL");
    hvd_submission whole;
    HVD_RETURN_IF_ERROR(copy_sized(submission, sizeof submission->struct_size, &whole));
    return runtime.submit(whole, handle);
  });
}

int hvd_start(hvd_handle handle, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    // Skip call.check(), which would wait in a process with a provisional rank.
    const ApiCall call;
    if (call.runtime() == nullptr) {
      return hvd::not_found(hvd::cat("handle ", handle, " does not exist"));
    }
    return call.runtime()->start(handle);
  });
}

int hvd_send(const hvd_message* message, hvd_handle* handle, char* error, size_t error_size) {
  return submit_message(HVD_SEND, message, handle, error, error_size);
}

int hvd_recv(const hvd_message* message, hvd_handle* handle, char* error, size_t error_size) {
  return submit_message(HVD_RECV, message, handle, error, error_size);
}

int hvd_runs_on_device(int32_t op, int32_t dtype, int32_t reduce_op, double prescale,
                       double postscale, int32_t* runs, char* error, size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    if (runs == nullptr) return hvd::invalid_argument("the answer's address is NULL");
    const bool has = runtime.device_support().has(op, dtype, reduce_op, prescale, postscale);
    *runs = !has ? 0 : runtime.tries_devices() ? 2 : 1;
    return {};
  });
}

int hvd_poll(hvd_handle handle, int32_t* done, char* error, size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    bool is_done = false;
    HVD_RETURN_IF_ERROR(runtime.poll(handle, &is_done));
    if (done != nullptr) *done = is_done ? 1 : 0;
    return {};
  });
}

int hvd_wait(hvd_handle handle, double timeout_seconds, char* error, size_t error_size) {
  return wait_by(error, error_size, [&](Runtime& runtime) {
    return runtime.wait(handle, deadline_of(timeout_seconds));
  });
}

int hvd_wait_on_stream(hvd_handle handle, void* stream, int32_t ends_process,
                       double timeout_seconds, char* error, size_t error_size) {
  return wait_by(error, error_size, [&](Runtime& runtime) {
    return runtime.wait_on_stream(handle, stream, ends_process != 0, deadline_of(timeout_seconds));
  });
}

int hvd_get_output(hvd_handle handle, uint32_t index, hvd_output* output, char* error,
                   size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    hvd_output whole;
    HVD_RETURN_IF_ERROR(copy_sized(output, sizeof output->struct_size, &whole));
    HVD_RETURN_IF_ERROR(runtime.output(handle, index, &whole));
    std::memcpy(output, &whole, std::min(output->struct_size, sizeof whole));
    return {};
  });
}

int hvd_release(hvd_handle handle, char* error, size_t error_size) {
  bool in_use = false;
  const int code = with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    return runtime.release(handle, &in_use);
  });
  return in_use ? HVD_IN_PROGRESS : code;
}

uint64_t hvd_digest(const void* data, size_t size, uint64_t seed) {
  return hvd::collectives::digest_of(data, size, seed);
}

int hvd_alloc(size_t size, void** memory, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    if (memory == nullptr) return hvd::invalid_argument("the memory's address is NULL");
    HVD_ASSIGN_OR_RETURN(*memory, heap().allocate(size));
    return {};
  });
}

int hvd_free(void* memory, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status { return heap().release(memory); });
}

int hvd_derive_key(const char* purpose, void* key, size_t size, char* error, size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    if (!state.initialized.load()) {
      return hvd::failed_precondition("Horovod has been shut down; use hvd.init()");
    }
    if (purpose == nullptr || key == nullptr || size != sizeof(hvd::Digest)) {
      return hvd::invalid_argument(hvd::cat("a key needs a purpose and ", sizeof(hvd::Digest),
                                            " bytes of memory, not ", size));
    }
    const hvd::Digest derived = runtime.derive_key(purpose);
    std::memcpy(key, derived.data(), derived.size());
    return {};
  });
}

int32_t hvd_capability(const char* name, char* why, size_t why_size) {
  bool works = false;
  guarded(why, why_size, [&]() -> Status {
    if (name == nullptr) return hvd::invalid_argument("a capability has a name");
    HVD_ASSIGN_OR_RETURN(const auto table, hvd::Settings::from_environment());
    const hvd::runtime::WorkerSettings settings(table);
    std::string reason;
    if (std::string_view(name) == "mpi-threads") {
      const ApiCall call;
      works = call.runtime() != nullptr && call.runtime()->uses("mpi-threads");
      return works ? Status()
                   : hvd::unavailable(
                         "no MPI that was initialised with MPI_THREAD_MULTIPLE is in use");
    }
    works = hvd::runtime::is_capable(name, settings, &reason);
    return works ? Status() : hvd::unavailable(std::move(reason));
  });
  return works ? 1 : 0;
}

int hvd_offer_stack(int32_t signal_number, int32_t fd, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    const hvd::MutexLock lock(state.mutex);
    HVD_ASSIGN_OR_RETURN(state.stack, hvd::runtime::open_stack_channel(signal_number, fd));
    return {};
  });
}

int hvd_start_timeline(const char* path, int32_t mark_cycles, char* error, size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    if (path == nullptr) return hvd::invalid_argument("the timeline's path is NULL");
    return runtime.observation().start_timeline(path, mark_cycles != 0);
  });
}

int hvd_stop_timeline(char* error, size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    return runtime.observation().stop_timeline();
  });
}

int hvd_metrics(int32_t scope, char* buffer, size_t size, size_t* needed, char* error,
                size_t error_size) {
  return with_runtime(error, error_size, [&](Runtime& runtime) -> Status {
    if (scope < HVD_METRICS_RANK || scope > HVD_METRICS_STEP) {
      return hvd::invalid_argument(hvd::cat("there is no scope ", scope, " of metrics"));
    }
    HVD_ASSIGN_OR_RETURN(const std::string text,
                         runtime.observation().metrics(static_cast<hvd_metrics_scope>(scope)));
    if (needed != nullptr) *needed = text.size() + 1;
    if (buffer != nullptr && size > text.size()) std::memcpy(buffer, text.c_str(), text.size() + 1);
    return {};
  });
}

// Five functions of the original Horovod's library, for programs that call them by dlopen or ctypes. No
// header declares the functions: new programs call hvd_*.
HVD_API int horovod_rank();
HVD_API int horovod_size();
HVD_API int horovod_local_rank();
HVD_API int horovod_local_size();
HVD_API void horovod_shutdown();

int horovod_rank() { return hvd_rank(); }
int horovod_size() { return hvd_size(); }
int horovod_local_rank() { return hvd_local_rank(); }
int horovod_local_size() { return hvd_local_size(); }
void horovod_shutdown() { static_cast<void>(hvd_shutdown(nullptr, 0)); }

}  // extern "C"
