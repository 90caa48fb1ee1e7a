// The observation functions of the C ABI: the timeline, metrics, the main thread's stack.
#include <cstring>
#include <mutex>
#include <string>

#include "base/text.h"
#include "horovod/horovod.h"
#include "runtime/capi/api_call.h"

namespace {

using hvd::Status;
using hvd::runtime::api::ApiCall;
using hvd::runtime::api::guarded;
using hvd::runtime::api::state;

}  // namespace

extern "C" {

int hvd_offer_stack(int32_t signal_number, int32_t fd, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    const hvd::MutexLock lock(state.mutex);
    HVD_ASSIGN_OR_RETURN(state.stack, hvd::runtime::open_stack_channel(signal_number, fd));
    return {};
  });
}

int hvd_start_timeline(const char* path, int32_t mark_cycles, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    if (path == nullptr) return hvd::invalid_argument("the timeline's path is NULL");
    return call.runtime()->observation().start_timeline(path, mark_cycles != 0);
  });
}

int hvd_stop_timeline(char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    return call.runtime()->observation().stop_timeline();
  });
}

int hvd_metrics(int32_t scope, char* buffer, size_t size, size_t* needed, char* error,
                size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    if (scope < HVD_METRICS_RANK || scope > HVD_METRICS_STEP) {
      return hvd::invalid_argument(hvd::cat("there is no scope ", scope, " of metrics"));
    }
    HVD_ASSIGN_OR_RETURN(const std::string text, call.runtime()->observation().metrics(
                                                     static_cast<hvd_metrics_scope>(scope)));
    if (needed != nullptr) *needed = text.size() + 1;
    if (buffer != nullptr && size > text.size()) std::memcpy(buffer, text.c_str(), text.size() + 1);
    return {};
  });
}

}  // extern "C"
