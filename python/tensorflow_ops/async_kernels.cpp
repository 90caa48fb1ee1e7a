// Functions that this project's operations use, and that the C API of TensorFlow 2.12 and older lacks: asynchronous
// kernels, and attributes in 2.4. The build does not compile this file: horovod/tensorflow/_compiled.py compiles it at
// the first import, against the headers of the installed TensorFlow. Each function has the contract of the TF_ function
// with the same name; tf_api.cpp finds the functions.
#include <tensorflow/c/tf_status.h>
#include <tensorflow/core/framework/op_kernel.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::AttrValue;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// TF_OpKernelConstruction and TF_OpKernelContext are these classes in all releases that need this file.
using Create = void* (*)(OpKernelConstruction*);
using Compute = void (*)(void* kernel, OpKernelContext*, AsyncOpKernel::DoneCallback*);
using Delete = void (*)(void* kernel);

struct AsyncKernelBuilder {
  std::string operation, device;
  Create create;
  Compute compute;
  Delete remove;
};

class AsyncKernel : public AsyncOpKernel {
 public:
  AsyncKernel(OpKernelConstruction* construction, const AsyncKernelBuilder& builder)
      : AsyncOpKernel(construction), builder_(builder), made_(builder.create(construction)) {}
  ~AsyncKernel() override { builder_.remove(made_); }
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    builder_.compute(made_, context, &done);
  }

 private:
  const AsyncKernelBuilder builder_;
  void* const made_;
};

class Factory : public tensorflow::kernel_factory::OpKernelFactory {
 public:
  explicit Factory(const AsyncKernelBuilder& builder) : builder_(builder) {}
  OpKernel* Create(OpKernelConstruction* construction) override {
    return new AsyncKernel(construction, builder_);
  }

 private:
  const AsyncKernelBuilder builder_;
};

// Returns NULL after it has stored an error in `status`.
const AttrValue* attribute(OpKernelConstruction* construction, const char* name,
                           TF_Status* status) {
  const auto& all = construction->def().attr();
  const auto found = all.find(std::string(name));
  if (found != all.end()) {
    TF_SetStatus(status, TF_OK, "");
    return &found->second;
  }
  const std::string text = std::string("the node has no attribute ") + name;
  TF_SetStatus(status, TF_INVALID_ARGUMENT, text.c_str());
  return nullptr;
}

}  // namespace

#define HOROVOD_EXPORTED extern "C" __attribute__((visibility("default")))

HOROVOD_EXPORTED AsyncKernelBuilder* horovod_TF_NewAsyncKernelBuilder(
    const char* operation, const char* device, Create create, Compute compute, Delete remove) {
  return new AsyncKernelBuilder{operation, device, create, compute, remove};
}

HOROVOD_EXPORTED void horovod_TF_RegisterKernelBuilder(const char* name,
                                                       AsyncKernelBuilder* builder,
                                                       TF_Status* status) {
  const std::unique_ptr<AsyncKernelBuilder> owned(builder);
  tensorflow::KernelDefBuilder definition(builder->operation.c_str());
  definition.Device(builder->device.c_str());
  tensorflow::kernel_factory::OpKernelRegistrar(
      definition.Build(), name,
      std::unique_ptr<tensorflow::kernel_factory::OpKernelFactory>(new Factory(*builder)));
  TF_SetStatus(status, TF_OK, "");
}

HOROVOD_EXPORTED void horovod_TF_RunAsyncOpKernelDoneCallback(AsyncOpKernel::DoneCallback* done) {
  (*done)();
}

HOROVOD_EXPORTED void horovod_TF_OpKernelConstruction_GetAttrSize(
    OpKernelConstruction* construction, const char* name, int32_t* list, int32_t* total,
    TF_Status* status) {
  *list = *total = -1;
  const AttrValue* value = attribute(construction, name, status);
  if (value == nullptr) return;
  if (value->value_case() == AttrValue::kS) *total = static_cast<int32_t>(value->s().size());
  if (value->value_case() != AttrValue::kList) return;
  const int types = value->list().type_size();
  *list = types > 0 ? types : value->list().i_size();
}

HOROVOD_EXPORTED void horovod_TF_OpKernelConstruction_GetAttrString(
    OpKernelConstruction* construction, const char* name, char* text, size_t size,
    TF_Status* status) {
  const AttrValue* value = attribute(construction, name, status);
  if (value == nullptr) return;
  std::memcpy(text, value->s().data(), size < value->s().size() ? size : value->s().size());
}

HOROVOD_EXPORTED void horovod_TF_OpKernelConstruction_GetAttrInt64(
    OpKernelConstruction* construction, const char* name, int64_t* number, TF_Status* status) {
  const AttrValue* value = attribute(construction, name, status);
  if (value != nullptr) *number = value->i();
}

HOROVOD_EXPORTED void horovod_TF_OpKernelConstruction_GetAttrInt64List(
    OpKernelConstruction* construction, const char* name, int64_t* numbers, int size,
    TF_Status* status) {
  const AttrValue* value = attribute(construction, name, status);
  if (value == nullptr) return;
  for (int i = 0; i < size && i < value->list().i_size(); ++i) numbers[i] = value->list().i(i);
}
