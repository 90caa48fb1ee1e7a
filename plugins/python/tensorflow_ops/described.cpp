#include "described.h"

namespace hvd::tensorflow {

namespace {

struct Shape {
  std::vector<int64_t> extents;
  int dimensions() const { return static_cast<int>(extents.size()); }
};

void read_shape(const TfApi& api, const Tensor* tensor, Shape* out) {
  out->extents.resize(static_cast<size_t>(api.dimensions(tensor)));
  for (int d = 0; d < out->dimensions(); ++d) {
    out->extents[static_cast<size_t>(d)] = api.extent(tensor, d);
  }
}

// The output that goes with an input, in its memory if that is to be had; then the input is dropped.
void make_output(const TfApi& api, Work* work, int index, Tensor** input, Shape* shape,
                 Status* status) {
  read_shape(api, *input, shape);
  // Held by us, it would have another owner.
  api.delete_tensor(*input);
  *input = nullptr;
  int forwarded = -1;
  Tensor* output = api.forward_or_allocate(work->context, &index, 1, index, shape->extents.data(),
                                           shape->dimensions(), &forwarded, status);
  if (api.get_code(status) != kOk) return;
  work->outputs.push_back(output);
  if (forwarded < 0) api.input(work->context, index, input, status);
}

}  // namespace

bool take_tensors(const TfApi& api, Work* work) {
  Status* status = api.new_status();
  const int count = api.input_count(work->context);
  Shape shape;
  for (int i = 0; i < count && api.get_code(status) == kOk; ++i) {
    Tensor* input = nullptr;
    api.input(work->context, i, &input, status);
    if (api.get_code(status) == kOk && work->operation->keeps_shapes) {
      make_output(api, work, i, &input, &shape, status);
    }
    if (api.get_code(status) == kOk) work->inputs.push_back(input);
  }
  const bool is_fine = api.get_code(status) == kOk;
  if (!is_fine) api.failure(work->context, status);
  api.delete_status(status);
  return is_fine;
}

Described::Described(const TfApi& api, const Work& work) : work_(work) {
  const size_t count = work.inputs.size() - (work.operation->has_splits ? 1 : 0);
  tensors.resize(count);
  names_.reserve(count);
  const std::string prefix = count > 1 ? name() + "_" : "";
  const std::string suffix = "of" + std::to_string(count);
  for (size_t i = 0; i < count; ++i) {
    const Tensor* output = work.operation->keeps_shapes ? work.outputs[i] : nullptr;
    const Tensor* input = work.inputs[i] != nullptr ? work.inputs[i] : output;
    hvd_tensor& tensor = tensors[i];
    tensor.dtype = dtype_of_tensorflow(api.dtype(input));
    tensor.ndim = static_cast<int32_t>(api.dimensions(input));
    tensor.input = api.data(input);
    if (output != nullptr) tensor.output = api.data(output);
    for (int d = 0; d < tensor.ndim; ++d) extents_.push_back(api.extent(input, d));
    if (count > 1) tensor.name = names_.emplace_back(prefix + std::to_string(i + 1) + suffix).c_str();
  }
  const int64_t* shape = extents_.data();
  for (hvd_tensor& tensor : tensors) {
    tensor.shape = shape;
    shape += tensor.ndim;
  }
  if (work.operation->has_splits) {
    const Tensor* rows_tensor = work.inputs[count];
    const auto* rows = static_cast<const int32_t*>(api.data(rows_tensor));
    splits.assign(rows, rows + api.bytes(rows_tensor) / sizeof(int32_t));
  }
}

std::string Described::name() const {
  const bool is_group = work_.inputs.size() - (work_.operation->has_splits ? 1 : 0) > 1;
  return std::string(is_group ? "grouped_" : "") + work_.operation->prefix + "." + work_.name;
}

}  // namespace hvd::tensorflow
