// The functions of the C ABI, over one runtime pointer. No exception leaves these functions.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/clock.h"
#include "base/settings.h"
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
using hvd::runtime::api::ApiCall;
using hvd::runtime::api::copy_sized;
using hvd::runtime::api::guarded;
using hvd::runtime::api::heap;
using hvd::runtime::api::state;

hvd::Deadline deadline_of(double seconds) {
  return seconds < 0 ? hvd::Deadline::never() : hvd::Deadline::after_seconds(seconds);
}

int32_t identity_number(int32_t hvd::runtime::Identity::*field) {
  const ApiCall call;
  if (!state.initialized.load() || call.identity() == nullptr) return -1;
  return call.identity()->*field;
}

int submit_message(int32_t op, const hvd_message* message, hvd_handle* handle, char* error,
                   size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    if (handle == nullptr) return hvd::invalid_argument("the handle's address is NULL");
    hvd_message whole;
    HVD_RETURN_IF_ERROR(copy_sized(message, sizeof message->struct_size, &whole));
    return call.runtime()->submit_message(op, whole, handle);
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
  return guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    if (handle == nullptr) return hvd::invalid_argument("the handle's address is NULL");
    hvd_submission whole;
    HVD_RETURN_IF_ERROR(copy_sized(submission, sizeof submission->struct_size, &whole));
    return call.runtime()->submit(whole, handle);
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
  return guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    if (runs == nullptr) return hvd::invalid_argument("the answer's address is NULL");
    const auto& runtime = *call.runtime();
    const bool has = runtime.device_support().has(op, dtype, reduce_op, prescale, postscale);
    *runs = !has ? 0 : runtime.tries_devices() ? 2 : 1;
    return {};
  });
}

int hvd_poll(hvd_handle handle, int32_t* done, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    bool is_done = false;
    HVD_RETURN_IF_ERROR(call.runtime()->poll(handle, &is_done));
    if (done != nullptr) *done = is_done ? 1 : 0;
    return {};
  });
}

int hvd_wait(hvd_handle handle, double timeout_seconds, char* error, size_t error_size) {
  bool in_progress = false;
  const int code = guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    const auto status = call.runtime()->wait(handle, deadline_of(timeout_seconds));
    in_progress = !status.has_value();
    return in_progress ? Status() : *status;
  });
  return in_progress ? HVD_IN_PROGRESS : code;
}

int hvd_wait_on_stream(hvd_handle handle, void* stream, int32_t ends_process,
                       double timeout_seconds, char* error, size_t error_size) {
  bool in_progress = false;
  const int code = guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    const auto status = call.runtime()->wait_on_stream(handle, stream, ends_process != 0,
                                                       deadline_of(timeout_seconds));
    in_progress = !status.has_value();
    return in_progress ? Status() : *status;
  });
  return in_progress ? HVD_IN_PROGRESS : code;
}

int hvd_get_output(hvd_handle handle, uint32_t index, hvd_output* output, char* error,
                   size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    hvd_output whole;
    HVD_RETURN_IF_ERROR(copy_sized(output, sizeof output->struct_size, &whole));
    HVD_RETURN_IF_ERROR(call.runtime()->output(handle, index, &whole));
    std::memcpy(output, &whole, std::min(output->struct_size, sizeof whole));
    return {};
  });
}

int hvd_release(hvd_handle handle, char* error, size_t error_size) {
  bool in_use = false;
  const int code = guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    return call.runtime()->release(handle, &in_use);
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
  return guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    if (!state.initialized.load()) {
      return hvd::failed_precondition("Horovod has been shut down; use hvd.init()");
    }
    if (purpose == nullptr || key == nullptr || size != sizeof(hvd::Digest)) {
      return hvd::invalid_argument(hvd::cat("a key needs a purpose and ", sizeof(hvd::Digest),
                                            " bytes of memory, not ", size));
    }
    const hvd::Digest derived = call.runtime()->derive_key(purpose);
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

}  // extern "C"
