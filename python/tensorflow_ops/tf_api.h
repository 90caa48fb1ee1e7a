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

// Finds functions in the libraries of TensorFlow.
class TfSymbols {
 public:
  TfSymbols();

  // The address of a function; NULL if TensorFlow lacks it.
  struct Symbol {
    void* address;
    template <typename Function>
    operator Function*() const {
      return reinterpret_cast<Function*>(address);
    }
  };
  Symbol operator()(const char* name);
  // Returns the first function that TensorFlow lacks; NULL: none.
  const char* missing() const { return missing_; }

 private:
  void* libraries_[3];
  const char* missing_ = nullptr;
};

struct TfApi {
  TfSymbols find = {};

  Status* (*new_status)() = find("TF_NewStatus");
  void (*delete_status)(Status*) = find("TF_DeleteStatus");
  void (*set_status)(Status*, int code, const char* message) = find("TF_SetStatus");
  int (*get_code)(const Status*) = find("TF_GetCode");
  const char* (*message)(const Status*) = find("TF_Message");

  OpBuilder* (*new_op)(const char* name) = find("TF_NewOpDefinitionBuilder");
  void (*register_op)(OpBuilder*, Status*) = find("TF_RegisterOpDefinition");
  void (*op_attribute)(OpBuilder*, const char* spec) = find("TF_OpDefinitionBuilderAddAttr");
  void (*op_input)(OpBuilder*, const char* spec) = find("TF_OpDefinitionBuilderAddInput");
  void (*op_output)(OpBuilder*, const char* spec) = find("TF_OpDefinitionBuilderAddOutput");
  void (*op_is_stateful)(OpBuilder*, bool) = find("TF_OpDefinitionBuilderSetIsStateful");
  void (*op_shapes)(OpBuilder*,
                    InferShapes) = find("TF_OpDefinitionBuilderSetShapeInferenceFunction");
  ShapeHandle* (*new_shape)() = find("TF_NewShapeHandle");
  void (*delete_shape)(ShapeHandle*) = find("TF_DeleteShapeHandle");
  int64_t (*shape_inputs)(ShapeContext*) = find("TF_ShapeInferenceContextNumInputs");
  void (*shape_of_input)(ShapeContext*, int index, ShapeHandle*,
                         Status*) = find("TF_ShapeInferenceContextGetInput");
  void (*set_shape)(ShapeContext*, int index, ShapeHandle*,
                    Status*) = find("TF_ShapeInferenceContextSetOutput");
  void (*unknown_shapes)(ShapeContext*, Status*) = find("TF_ShapeInferenceContextSetUnknownShape");

  KernelBuilder* (*new_kernel)(const char* op, const char* device, Create, Compute,
                               Delete) = find("TF_NewAsyncKernelBuilder");
  void (*register_kernel)(const char* name, KernelBuilder*,
                          Status*) = find("TF_RegisterKernelBuilder");
  void (*string_size)(Construction*, const char* name, int32_t* list, int32_t* total,
                      Status*) = find("TF_OpKernelConstruction_GetAttrSize");
  void (*string)(Construction*, const char* name, char* value, size_t size,
                 Status*) = find("TF_OpKernelConstruction_GetAttrString");
  void (*number)(Construction*, const char* name, int64_t* value,
                 Status*) = find("TF_OpKernelConstruction_GetAttrInt64");
  void (*numbers)(Construction*, const char* name, int64_t* values, int size,
                  Status*) = find("TF_OpKernelConstruction_GetAttrInt64List");
  // The result includes the names of inlined calls, outermost first.
  StringView (*node_name)(Construction*) = find("TF_OpKernelConstruction_GetName");
  void (*construction_failure)(Construction*, Status*) = find("TF_OpKernelConstruction_Failure");

  int (*input_count)(Context*) = find("TF_NumInputs");
  void (*input)(Context*, int index, Tensor**, Status*) = find("TF_GetInput");
  Tensor* (*allocate_output)(Context*, int index, int dtype, const int64_t* shape, int dimensions,
                             size_t bytes, Status*) = find("TF_AllocateOutput");
  // Reuses an input's memory for an output if no other code uses that input. The caller must not hold the input.
  Tensor* (*forward_or_allocate)(Context*, const int* inputs, int input_count, int output,
                                 const int64_t* shape, int dimensions, int* forwarded,
                                 Status*) = find("TF_ForwardInputOrAllocateOutput");
  void (*failure)(Context*, Status*) = find("TF_OpKernelContext_Failure");
  void (*run_done)(Done*) = find("TF_RunAsyncOpKernelDoneCallback");

  int (*dtype)(const Tensor*) = find("TF_TensorType");
  int (*dimensions)(const Tensor*) = find("TF_NumDims");
  int64_t (*extent)(const Tensor*, int dimension) = find("TF_Dim");
  size_t (*bytes)(const Tensor*) = find("TF_TensorByteSize");
  void* (*data)(const Tensor*) = find("TF_TensorData");
  void (*delete_tensor)(Tensor*) = find("TF_DeleteTensor");
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
