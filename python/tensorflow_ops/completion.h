// An operation of a TensorFlow graph that is submitted but not complete. kernels.cpp makes it; a thread of TensorFlow
// or the waiter's thread completes and frees it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "horovod/horovod.h"
#include "operations.h"

namespace hvd::tensorflow {

struct PendingOperation {
  const Operation* operation;
  std::string name;
  Context* context;
  std::function<void()> done;  // reports the end to TensorFlow
  // Held until the work is complete; NULL: the output uses the input's memory.
  std::vector<Tensor*> inputs;
  std::vector<Tensor*> outputs;  // also held, for operations that keep shapes
  hvd_handle handle = 0;
};

// Returns the number of tensors that ranks exchange: all inputs except the splits and the number of the call.
size_t tensor_count(const PendingOperation& work);

// Frees the work, and reports its failure to TensorFlow, or its success if `message` is NULL.
void finish(PendingOperation* work, int status, const char* message);

// Passes the outputs of complete work to TensorFlow, frees the work and reports its end. If `status` is not HVD_OK,
// `error` contains the message; it has space for kErrorSize bytes.
void hand_over(PendingOperation* work, int status, char* error);

// Passes the work to the waiter's thread, which then owns it, waits for it and finishes it.
void await(PendingOperation* work);

}  // namespace hvd::tensorflow
