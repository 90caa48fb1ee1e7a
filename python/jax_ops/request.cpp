#include "request.h"

#include <cstring>
#include <limits>
#include <string_view>

namespace hvd::jax {

namespace {

// XLA's element types.
constexpr struct {
  int32_t xla;
  int32_t horovod;
  size_t size;
} kDtypes[] = {
    {1, HVD_BOOL, 1},      {2, HVD_INT8, 1},     {3, HVD_INT16, 2},    {4, HVD_INT32, 4},
    {5, HVD_INT64, 8},     {6, HVD_UINT8, 1},    {7, HVD_UINT16, 2},   {8, HVD_UINT32, 4},
    {9, HVD_UINT64, 8},    {10, HVD_FLOAT16, 2}, {11, HVD_FLOAT32, 4}, {12, HVD_FLOAT64, 8},
    {16, HVD_BFLOAT16, 2},
};
constexpr int32_t kInt64 = 5;
constexpr int32_t kFloat64 = 12;
constexpr int32_t kToken = 17;

template <typename Value>
bool take(const FfiAttributes& attributes, int64_t index, int32_t dtype, Value* value) {
  if (attributes.types[index] != kFfiScalar) return false;
  const auto* scalar = static_cast<const FfiScalar*>(attributes.items[index]);
  if (scalar->dtype == dtype) std::memcpy(value, scalar->value, sizeof *value);
  return scalar->dtype == dtype;
}

// Reads a number; one of more than 32 bits becomes -1. If the attribute is missing, the value does not change.
void take_number(const FfiAttributes& attributes, int64_t index, int32_t* value) {
  int64_t number = 0;
  if (!take(attributes, index, kInt64, &number)) return;
  const bool fits = number >= std::numeric_limits<int32_t>::min() &&
                    number <= std::numeric_limits<int32_t>::max();
  *value = fits ? static_cast<int32_t>(number) : -1;
}

void read_attributes(const FfiAttributes& attributes, XlaRequest* request) {
  for (int64_t i = 0; i < attributes.size; ++i) {
    const std::string_view name(attributes.names[i]->data, attributes.names[i]->size);
    if (name == "kind") take_number(attributes, i, &request->kind);
    if (name == "reduce_op") take_number(attributes, i, &request->reduce_op);
    if (name == "root_rank") take_number(attributes, i, &request->root_rank);
    if (name == "process_set") take_number(attributes, i, &request->process_set);
    if (name == "prescale") take(attributes, i, kFloat64, &request->prescale);
    if (name == "postscale") take(attributes, i, kFloat64, &request->postscale);
    if (attributes.types[i] != kFfiString) continue;
    const auto* text = static_cast<const FfiBytes*>(attributes.items[i]);
    if (name == "name") request->name.assign(text->data, text->size);
    if (name == "program") request->program.assign(text->data, text->size);
  }
}

}  // namespace

int32_t dtype_of_xla(int32_t dtype) {
  for (const auto& entry : kDtypes) {
    if (entry.xla == dtype) return entry.horovod;
  }
  return -1;
}

int64_t model_of(const FfiCall& call) {
  int64_t model = -1;
  for (int64_t i = 0; i < call.attributes.size; ++i) {
    const FfiBytes& name = *call.attributes.names[i];
    if (std::string_view(name.data, name.size) == "model") take(call.attributes, i, kInt64, &model);
  }
  return model;
}

size_t size_of(int32_t dtype) {
  for (const auto& entry : kDtypes) {
    if (entry.horovod == dtype) return entry.size;
  }
  return 0;
}

size_t bytes_of(const FfiBuffer& buffer) {
  size_t bytes = size_of(dtype_of_xla(buffer.dtype));
  for (int64_t d = 0; d < buffer.rank; ++d) bytes *= static_cast<size_t>(buffer.dims[d]);
  return bytes;
}

std::vector<const FfiBuffer*> arrays_of(const FfiValues& values) {
  std::vector<const FfiBuffer*> arrays;
  for (int64_t i = 0; i < values.size; ++i) {
    const auto* buffer = static_cast<const FfiBuffer*>(values.items[i]);
    if (buffer->dtype != kToken) arrays.push_back(buffer);
  }
  return arrays;
}

XlaRequest read_request(const FfiCall& call) {
  XlaRequest request;
  read_attributes(call.attributes, &request);
  const std::vector<const FfiBuffer*> inputs = arrays_of(call.arguments);
  const std::vector<const FfiBuffer*> outputs = arrays_of(call.results);
  const size_t count = inputs.size();
  if (request.kind < 0 || request.name.empty() || outputs.size() != count) {
    request.problem = "this program was compiled for another version of Horovod.";
    return request;
  }
  // A reduction is always a group, even of one tensor, as outside of compiled programs.
  const bool is_group = request.kind == HVD_ALLREDUCE;
  for (size_t i = 1; is_group && i <= count; ++i) {
    request.member_names.push_back(request.name + "_" + std::to_string(i) + "of" +
                                   std::to_string(count));
  }
  request.tensors.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const FfiBuffer& input = *inputs[i];
    hvd_tensor& tensor = request.tensors[i];
    tensor = {};
    tensor.name = is_group ? request.member_names[i].c_str() : nullptr;
    tensor.dtype = dtype_of_xla(input.dtype);
    tensor.ndim = static_cast<int32_t>(input.rank);
    tensor.shape = input.dims;
    tensor.input = input.data;
    tensor.output = request.keeps_shapes() ? outputs[i]->data : nullptr;
    if (tensor.dtype < 0) request.problem = "its type of elements is not one that travels.";
  }
  return request;
}

hvd_submission XlaRequest::submission() const {
  hvd_submission made{};
  made.struct_size = sizeof made;
  made.op = kind;
  made.reduce_op = reduce_op;
  made.name = name.c_str();
  made.process_set = process_set;
  made.root_rank = root_rank;
  made.device = HVD_CPU;
  made.prescale = prescale;
  made.postscale = postscale;
  made.tensor_count = static_cast<uint32_t>(tensors.size());
  made.tensors = tensors.data();
  made.program = program_description;
  return made;
}

}  // namespace hvd::jax
