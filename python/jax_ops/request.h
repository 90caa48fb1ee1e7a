// A collective that a compiled JAX program calls, read from XLA's records. handler.cpp reads one for each call, on a
// thread of XLA.
#pragma once

#include <string>
#include <vector>

#include "horovod/horovod.h"
#include "xla_ffi.h"

namespace hvd::jax {

struct XlaRequest {
  int32_t kind = -1;  // hvd_op_kind
  int32_t reduce_op = 0, root_rank = 0, process_set = 0;
  double prescale = 1, postscale = 1;
  std::string name;
  std::string program;  // the compiled program that makes the call; empty: unknown
  std::vector<std::string> member_names;
  std::vector<hvd_tensor> tensors;
  const char* program_description = nullptr;  // for stall reports; exists as long as the process
  std::string problem;                        // one sentence for an unreadable call; else empty

  // Outputs have the shapes of the inputs, and the runtime writes them directly.
  bool keeps_shapes() const { return kind == HVD_ALLREDUCE || kind == HVD_BROADCAST; }
  // Returns the submission for the runtime, which is valid as long as the request and the buffers of the call.
  hvd_submission submission() const;
};

XlaRequest read_request(const FfiCall& call);

// Returns the model whose replicas a call compares; -1 if the call does not name a model.
int64_t model_of(const FfiCall& call);

// Returns the arrays among the arguments or results of a call. The token that orders a program's calls is not an array.
std::vector<const FfiBuffer*> arrays_of(const FfiValues& values);

// bytes_of() returns the size in bytes of a tensor, size_of() that of an element of an hvd_dtype.
size_t bytes_of(const FfiBuffer& buffer);
size_t size_of(int32_t dtype);
// Returns the hvd_dtype of XLA's element type, or -1.
int32_t dtype_of_xla(int32_t dtype);

}  // namespace hvd::jax
