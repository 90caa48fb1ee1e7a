#include "completion.h"

#include <cstring>
#include <utility>

#include "library.h"
#include "python/waiter.h"

namespace hvd::tensorflow {

namespace {

// Returns TensorFlow's code. `was_submitted`: the error comes from the negotiation of the ranks, not from this call.
int code_of(int status, bool was_submitted) {
  if (status == HVD_INVALID_ARGUMENT || status == HVD_ALREADY_EXISTS || status == HVD_NOT_FOUND) {
    return was_submitted ? kFailedPrecondition : kInvalidArgument;
  }
  return status == HVD_UNIMPLEMENTED ? kUnimplemented : kUnknown;
}

// Copies the runtime's outputs into tensors of the graph. Stores an error in `status`.
void copy_outputs(const TfApi& api, const PendingOperation& work, Status* status, char* error) {
  const size_t count = tensor_count(work);
  for (size_t i = 0; i < count; ++i) {
    hvd_output output{};
    output.struct_size = sizeof output;
    const int got =
        library()->get_output(work.handle, static_cast<uint32_t>(i), &output, error, kErrorSize);
    if (got != HVD_OK) return api.set_status(status, kUnknown, error);
    size_t bytes = size_of_dtype(output.dtype);
    for (int d = 0; d < output.ndim; ++d) bytes *= static_cast<size_t>(output.shape[d]);
    Tensor* tensor =
        api.allocate_output(work.context, static_cast<int>(i), dtype_for_tensorflow(output.dtype),
                            output.shape, output.ndim, bytes, status);
    if (api.get_code(status) != kOk) return;
    if (bytes > 0) std::memcpy(api.data(tensor), output.data, bytes);
    api.delete_tensor(tensor);
    if (!work.operation->has_splits) continue;
    const int64_t ranks = output.received_split_count;
    tensor = api.allocate_output(work.context, static_cast<int>(i) + 1, 3 /* int32 */, &ranks, 1,
                                 sizeof(int32_t) * static_cast<size_t>(ranks), status);
    if (api.get_code(status) != kOk) return;
    if (ranks > 0) {
      std::memcpy(api.data(tensor), output.received_splits,
                  sizeof(int32_t) * static_cast<size_t>(ranks));
    }
    api.delete_tensor(tensor);
  }
}

// Work that the waiter's thread waits for.
class Submitted : public python::Awaited {
 public:
  explicit Submitted(PendingOperation* work) : Awaited(work->handle), work_(work) {}
  void complete(int status, char* error) override { hand_over(work_, status, error); }

 private:
  PendingOperation* work_;
};

}  // namespace

size_t tensor_count(const PendingOperation& work) {
  return work.inputs.size() - (work.operation->has_splits ? 1 : 0) -
         (work.operation->has_call ? 1 : 0);
}

void hand_over(PendingOperation* work, int status, char* error) {
  if (status == HVD_OK && !work->operation->keeps_shapes) {
    const TfApi& api = *tf_api();
    Status* copied = api.new_status();
    copy_outputs(api, *work, copied, error);
    if (api.get_code(copied) != kOk) api.failure(work->context, copied);
    api.delete_status(copied);
  }
  std::vector<char> unused(kErrorSize);
  if (library()->release(work->handle, unused.data(), unused.size()) == HVD_IN_PROGRESS) {
    work->inputs.clear();  // never deleted, because a library may still use their memory
    work->outputs.clear();
  }
  finish(work, status, status == HVD_OK ? nullptr : error);
}

void finish(PendingOperation* work, int status, const char* message) {
  const TfApi& api = *tf_api();
  if (message != nullptr) {
    Status* failed = api.new_status();
    const std::string text = std::string(work->operation->name) + " " + work->name + ": " + message;
    api.set_status(failed, code_of(status, work->handle != 0), text.c_str());
    api.failure(work->context, failed);
    api.delete_status(failed);
  }
  for (Tensor* tensor : work->inputs) {
    if (tensor != nullptr) api.delete_tensor(tensor);
  }
  for (Tensor* tensor : work->outputs) api.delete_tensor(tensor);
  const std::function<void()> done = std::move(work->done);
  delete work;
  done();
}

void await(PendingOperation* work) {
  static python::Waiter* const waiter = new python::Waiter(library()->wait, library()->poll);
  waiter->add(new Submitted(work));
}

}  // namespace hvd::tensorflow
