#include "described.h"

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

class Submitted : public python::Awaited {
 public:
  explicit Submitted(PendingOperation* work) : Awaited(work->handle), work_(work) {}
  void complete(int status, char* error) override { hand_over(work_, status, error); }

 private:
  PendingOperation* work_;
};

void read_shape(const TfApi& api, const Tensor* tensor, Shape* out) {
  out->resize(static_cast<size_t>(api.dimensions(tensor)));
  for (size_t d = 0; d < out->size(); ++d) (*out)[d] = api.extent(tensor, static_cast<int>(d));
}

// Allocates the output for an input, in the input's memory if TensorFlow allows that: TensorFlow reuses the memory only
// if no other reference to the input exists. Returns the input if the output has separate memory, else null.
Tensor* make_output(const TfApi& api, PendingOperation* work, int index, const Shape& shape,
                    Status* status) {
  int forwarded = -1;
  Tensor* output = api.forward_or_allocate(work->context, &index, 1, index, shape.data(),
                                           static_cast<int>(shape.size()), &forwarded, status);
  if (api.get_code(status) != kOk) return nullptr;
  work->outputs.push_back(output);
  Tensor* input = nullptr;
  if (forwarded < 0) api.input(work->context, index, &input, status);
  return input;
}

Tensor* make_output_like(const TfApi& api, PendingOperation* work, int index, Shape* shape,
                         Status* status) {
  Tensor* input = nullptr;
  api.input(work->context, index, &input, status);
  if (api.get_code(status) != kOk) return nullptr;
  read_shape(api, input, shape);
  api.delete_tensor(input);
  return make_output(api, work, index, *shape, status);
}

// Refuses an input whose shape differs from the graph's static shape, which may be wrong (Tensor.set_shape).
void check_shape(const TfApi& api, const Tensor* input, size_t index, const Shape& promised,
                 Shape* shape, Status* status) {
  read_shape(api, input, shape);
  if (*shape == promised) return;
  const std::string text = "tensor " + std::to_string(index) +
                           " has not the shape that the graph says it has; see tf.ensure_shape.";
  api.set_status(status, kInvalidArgument, text.c_str());
}

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

bool take_tensors(const TfApi& api, PendingOperation* work, const std::vector<Shape>& shapes) {
  Status* status = api.new_status();
  const auto count = static_cast<size_t>(api.input_count(work->context));
  work->inputs.reserve(count);
  work->outputs.reserve(count);
  Shape shape;
  for (size_t i = 0; i < count && api.get_code(status) == kOk; ++i) {
    Tensor* input = nullptr;
    const int index = static_cast<int>(i);
    const bool is_call = work->operation->has_call && i + 1 == count;
    if (is_call || !work->operation->keeps_shapes) {
      api.input(work->context, index, &input, status);
    } else if (i < shapes.size()) {
      input = make_output(api, work, index, shapes[i], status);
    } else {
      input = make_output_like(api, work, index, &shape, status);
    }
    if (api.get_code(status) == kOk) work->inputs.push_back(input);
    if (input != nullptr && i < shapes.size()) {
      check_shape(api, input, i, shapes[i], &shape, status);
    }
  }
  const bool is_fine = api.get_code(status) == kOk;
  if (!is_fine) api.failure(work->context, status);
  api.delete_status(status);
  return is_fine;
}

Names names_of(const Operation& operation, const std::string& name, size_t count) {
  Names names;
  names.request = std::string(count > 1 ? "grouped_" : "") + operation.prefix + "." + name;
  if (count < 2) return names;
  const std::string suffix = "of" + std::to_string(count);
  for (size_t i = 1; i <= count; ++i) {
    names.tensors.push_back(names.request + "_" + std::to_string(i) + suffix);
  }
  return names;
}

Described::Described(const TfApi& api, const PendingOperation& work, const Names& names,
                     const std::vector<Shape>& shapes) {
  const size_t count = tensor_count(work);
  tensors.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const Tensor* output = work.operation->keeps_shapes ? work.outputs[i] : nullptr;
    const Tensor* input = work.inputs[i] != nullptr ? work.inputs[i] : output;
    hvd_tensor& tensor = tensors[i];
    tensor.dtype = dtype_of_tensorflow(api.dtype(input));
    tensor.input = api.data(input);
    if (output != nullptr) tensor.output = api.data(output);
    if (count > 1) tensor.name = names.tensors[i].c_str();
    if (shapes.empty()) continue;
    tensor.ndim = static_cast<int32_t>(shapes[i].size());
    tensor.shape = shapes[i].data();
  }
  if (shapes.empty()) read_shapes(api, work);
  if (work.operation->has_splits) {
    const Tensor* rows_tensor = work.inputs[count];
    const auto* rows = static_cast<const int64_t*>(api.data(rows_tensor));
    splits.assign(rows, rows + api.bytes(rows_tensor) / sizeof(int64_t));
  }
}

void Described::read_shapes(const TfApi& api, const PendingOperation& work) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor* input = work.inputs[i] != nullptr ? work.inputs[i] : work.outputs[i];
    tensors[i].ndim = static_cast<int32_t>(api.dimensions(input));
    for (int d = 0; d < tensors[i].ndim; ++d) extents_.push_back(api.extent(input, d));
  }
  const int64_t* shape = extents_.data();
  for (hvd_tensor& tensor : tensors) {
    tensor.shape = shape;
    shape += tensor.ndim;
  }
}

}  // namespace hvd::tensorflow
