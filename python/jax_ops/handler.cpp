// The XLA FFI handlers of this package. horovod_jax_execute submits the request of an operation and returns. If a small
// operation is ready at once, the handler completes it; otherwise the waiter does.
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "library.h"
#include "python/waiter.h"
#include "request.h"
#include "xla_ffi.h"

namespace hvd::jax {

namespace {

using python::kErrorSize;

// The longest time in seconds for which a call may block XLA's thread, and the largest size in bytes for which this
// wait costs less than waking another thread.
constexpr double kAtOnce = 0.0002;
constexpr size_t kSmall = 64 * 1024;

// Returns an error whose prefix Python recognises: horovod/jax/_errors.py.
FfiError* error_of(const FfiApi& api, int code, const std::string& message) {
  const std::string text = "Horovod: " + message;
  FfiErrorCreate create{sizeof create, nullptr, text.c_str(), code};
  return api.error_create(&create);
}

int code_of(int status) {
  if (status == HVD_INVALID_ARGUMENT || status == HVD_ALREADY_EXISTS || status == HVD_NOT_FOUND) {
    return kFfiInvalidArgument;
  }
  return status == HVD_UNIMPLEMENTED ? kFfiUnimplemented : kFfiInternal;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "(";
  for (size_t d = 0; d < shape.size(); ++d) text += (d ? ", " : "") + std::to_string(shape[d]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

// A result of the program. XLA keeps the memory until the call is complete, but frees its own description
// of the buffer (FfiBuffer and its dimensions) when the handler returns.
struct Result {
  explicit Result(const FfiBuffer& buffer)
      : data(buffer.data), bytes(bytes_of(buffer)), shape(buffer.dims, buffer.dims + buffer.rank) {}

  void* data;
  size_t bytes;
  std::vector<int64_t> shape;
};

// Copies the runtime's outputs into the program's buffers. Returns an error message, or "".
std::string copy_outputs(hvd_handle handle, const std::vector<Result>& results, char* error) {
  for (size_t i = 0; i < results.size(); ++i) {
    hvd_output output{};
    output.struct_size = sizeof output;
    if (library()->get_output(handle, static_cast<uint32_t>(i), &output, error, kErrorSize) !=
        HVD_OK) {
      return error;
    }
    const Result& result = results[i];
    const std::span<const int64_t> shape(output.shape, static_cast<size_t>(output.ndim));
    if (!std::equal(shape.begin(), shape.end(), result.shape.begin(), result.shape.end())) {
      return "the result has the shape " + shape_text(shape) + " and not " +
             shape_text(result.shape) +
             ", which ranks with equal inputs would give: inside jax.jit shapes are fixed";
    }
    if (result.bytes > 0) std::memcpy(result.data, output.data, result.bytes);
  }
  return "";
}

// A submitted call and its completion. Outlives the handler's call and XLA's records of the call, so it copies the data
// that it needs. `api` is XLA's own table, which exists as long as the process.
class SubmittedCall : public python::Awaited {
 public:
  SubmittedCall(hvd_handle handle, const FfiApi& api, const XlaRequest& request,
                const FfiValues& results)
      : Awaited(handle), api_(api), name_(request.name) {
    if (request.keeps_shapes()) return;
    for (const FfiBuffer* result : arrays_of(results)) results_.emplace_back(*result);
  }

  void set_future(FfiFuture* future) { future_ = future; }

  // Ends the call; returns its error, or NULL. The work must be complete.
  FfiError* end(int status, char* error) {
    std::string problem;
    int code = kFfiInvalidArgument;
    if (status != HVD_OK) {
      problem = error;
      code = code_of(status);
    } else {
      problem = copy_outputs(handle(), results_, error);
    }
    char unused[kErrorSize];
    library()->release(handle(), unused, sizeof unused);
    return problem.empty() ? nullptr : error_of(api_, code, name_ + ": " + problem);
  }

  void complete(int status, char* error) override {
    FfiError* failed = end(status, error);
    if (failed != nullptr) {
      FfiFutureSetError set{sizeof set, nullptr, future_, failed};
      api_.future_set_error(&set);
    } else {
      FfiFutureSetAvailable set{sizeof set, nullptr, future_};
      api_.future_set_available(&set);
    }
  }

 private:
  const FfiApi& api_;
  const std::string name_;
  std::vector<Result> results_;
  FfiFuture* future_ = nullptr;
};

python::Waiter& waiter() {
  static python::Waiter* const waiter = new python::Waiter(library()->wait, library()->poll);
  return *waiter;
}

size_t bytes_of_all(const FfiValues& values) {
  size_t bytes = 0;
  for (const FfiBuffer* array : arrays_of(values)) bytes += bytes_of(*array);
  return bytes;
}

FfiError* execute(FfiCall* call) {
  const FfiApi& api = *call->api;
  if (library() == nullptr) return error_of(api, kFfiInternal, "horovod.jax is not loaded.");
  XlaRequest request = read_request(*call);
  request.program_description = description_of(request.program);
  if (!request.problem.empty()) {
    return error_of(api, kFfiInvalidArgument, request.name + ": " + request.problem);
  }
  char error[kErrorSize] = "";
  hvd_handle handle = 0;
  const hvd_submission submission = request.submission();
  int status = library()->submit(&submission, &handle, error, sizeof error);
  if (status != HVD_OK) return error_of(api, code_of(status), request.name + ": " + error);
  auto work = std::make_unique<SubmittedCall>(handle, api, request, call->results);
  if (bytes_of_all(call->arguments) <= kSmall) {
    status = library()->wait(handle, kAtOnce, error, sizeof error);
    if (status != HVD_IN_PROGRESS) return work->end(status, error);
  }
  FfiFutureCreate create{sizeof create, nullptr, nullptr};
  FfiError* failed = api.future_create(&create);
  if (failed != nullptr) {  // without a future, this thread itself must wait
    status = library()->wait(handle, -1, error, sizeof error);
    FfiError* ended = work->end(status, error);
    return ended != nullptr ? ended : failed;
  }
  work->set_future(create.future);
  call->future = create.future;
  waiter().add(work.release());
  return nullptr;
}

// Counts a reduction of a model. Before some reductions, Python compares the parameters, which are the arguments, and
// this thread of XLA waits for the other ranks.
FfiError* compare(FfiCall* call) {
  const Compare compare_models = count_reduction(model_of(*call));
  if (compare_models == nullptr) return nullptr;
  std::vector<Parameter> parameters;
  for (const FfiBuffer* array : arrays_of(call->arguments)) {
    const auto bytes = static_cast<int64_t>(bytes_of(*array));
    parameters.push_back({array->data, dtype_of_xla(array->dtype), bytes});
  }
  char error[kErrorSize] = "";
  const int status = compare_models(model_of(*call), parameters.data(),
                                    static_cast<int64_t>(parameters.size()), error, sizeof error);
  return status == HVD_OK ? nullptr : error_of(*call->api, code_of(status), error);
}

// Returns whether XLA only asks for the interface version of the handler, as it does before its first call.
bool is_question(FfiCall* call) {
  for (FfiExtension* at = call->extension; at != nullptr; at = at->next) {
    if (at->type != kFfiMetadataExtension) continue;
    FfiMetadata* metadata = reinterpret_cast<FfiMetadataExtension*>(at)->metadata;
    metadata->version.major = kFfiMajor;
    metadata->version.minor = interface_minor();
    metadata->traits = 0;
    return true;
  }
  return false;
}

}  // namespace

}  // namespace hvd::jax

extern "C" __attribute__((visibility("default"))) hvd::jax::FfiError* horovod_jax_execute(
    hvd::jax::FfiCall* call) {
  if (hvd::jax::is_question(call)) return nullptr;
  return hvd::jax::execute(call);
}

extern "C" __attribute__((visibility("default"))) hvd::jax::FfiError* horovod_jax_compare(
    hvd::jax::FfiCall* call) {
  if (hvd::jax::is_question(call)) return nullptr;
  return hvd::jax::compare(call);
}
