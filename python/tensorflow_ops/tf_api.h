// The functions of TensorFlow's C API that this project's operations use, found in the TensorFlow that the process has
// loaded. This file declares the functions: TensorFlow's c_api.h, kernels.h, ops.h, tf_tensor.h and tf_status.h
// guarantee their signatures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace hvd::tensorflow {

// Opaque types of TensorFlow.
struct Status;
struct Tensor;
struct OpBuilder;
struct KernelBuilder;
struct Construction;  // valid during the construction of a kernel
struct Context;       // valid during a kernel's run, until `done`
struct Done;
struct ShapeContext;
struct ShapeHandle;

using Create = void* (*)(Construction*);
using Compute = void (*)(void* kernel, Context*, Done*);
using Delete = void (*)(void* kernel);
using InferShapes = void (*)(ShapeContext*, Status*);

// TF_StringView: borrowed.
struct StringView {
  const char* data;
  size_t size;
};

enum TfCode {
  kOk = 0,
  kUnknown = 2,
  kInvalidArgument = 3,
  kFailedPrecondition = 9,
  kUnimplemented = 12
};

struct TfApi {
  Status* (*new_status)();
  void (*delete_status)(Status*);
  void (*set_status)(Status*, int code, const char* message);
  int (*get_code)(const Status*);
  const char* (*message)(const Status*);

  OpBuilder* (*new_op)(const char* name);
  void (*register_op)(OpBuilder*, Status*);
  void (*op_attribute)(OpBuilder*, const char* spec);
  void (*op_input)(OpBuilder*, const char* spec);
  void (*op_output)(OpBuilder*, const char* spec);
  void (*op_is_stateful)(OpBuilder*, bool);
  void (*op_shapes)(OpBuilder*, InferShapes);
  ShapeHandle* (*new_shape)();
  void (*delete_shape)(ShapeHandle*);
  int64_t (*shape_inputs)(ShapeContext*);
  void (*shape_of_input)(ShapeContext*, int index, ShapeHandle*, Status*);
  void (*set_shape)(ShapeContext*, int index, ShapeHandle*, Status*);
  void (*unknown_shapes)(ShapeContext*, Status*);

  KernelBuilder* (*new_kernel)(const char* op, const char* device, Create, Compute, Delete);
  void (*register_kernel)(const char* name, KernelBuilder*, Status*);
  void (*string_size)(Construction*, const char* name, int32_t* list, int32_t* total, Status*);
  void (*string)(Construction*, const char* name, char* value, size_t size, Status*);
  void (*number)(Construction*, const char* name, int64_t* value, Status*);
  void (*numbers)(Construction*, const char* name, int64_t* values, int size, Status*);
  // The result includes the names of inlined calls, outermost first.
  StringView (*node_name)(Construction*);
  void (*construction_failure)(Construction*, Status*);

  int (*input_count)(Context*);
  void (*input)(Context*, int index, Tensor**, Status*);
  Tensor* (*allocate_output)(Context*, int index, int dtype, const int64_t* shape, int dimensions,
                             size_t bytes, Status*);
  // Reuses an input's memory for an output if no other code uses that input. The caller must not hold the input.
  Tensor* (*forward_or_allocate)(Context*, const int* inputs, int input_count, int output,
                                 const int64_t* shape, int dimensions, int* forwarded, Status*);
  void (*failure)(Context*, Status*);
  void (*run_done)(Done*);

  int (*dtype)(const Tensor*);
  int (*dimensions)(const Tensor*);
  int64_t (*extent)(const Tensor*, int dimension);
  size_t (*bytes)(const Tensor*);
  void* (*data)(const Tensor*);
  void (*delete_tensor)(Tensor*);
};

// Copies a callback so that it outlives the call of the kernel. TensorFlow passes the address of a
// std::function<void()> among its own arguments, which is invalid once the kernel returns. Returns an empty function if
// the address holds another object, as may happen in a future TensorFlow.
std::function<void()> keep(const Done* done);

// Returns the API of the process's TensorFlow; NULL if TensorFlow lacks a function, which `missing_function` then
// names.
const TfApi* tf_api();
const char* missing_function();

}  // namespace hvd::tensorflow
