#include "described.h"

namespace hvd::tensorflow {

namespace {

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

// Calls make_output() for an output with the shape of the input.
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
