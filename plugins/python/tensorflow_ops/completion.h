// A submitted operation of a graph that is pending, and its completion.
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
  std::function<void()> done;    // tells TensorFlow
  std::vector<Tensor*> inputs;   // ours until the work is complete; NULL: the output has its memory
  std::vector<Tensor*> outputs;  // the same, of operations that keep shapes
  hvd_handle handle = 0;
};

// Frees the work and tells TensorFlow that it failed, or that it succeeded where `message` is NULL.
void finish(PendingOperation* work, int status, const char* message);

// Gives TensorFlow what complete work has brought, frees it and tells TensorFlow. `error` says what
// went wrong where `status` is not HVD_OK, and has room for kErrorSize.
void hand_over(PendingOperation* work, int status, char* error);

// The waiter's thread waits for the work, which is its own from now on, and finishes it.
void await(PendingOperation* work);

}  // namespace hvd::tensorflow
