// Describes the tensors of a node of a TensorFlow graph as hvd_tensors. kernels.cpp calls this code when the node runs,
// on a thread of TensorFlow.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "horovod/horovod.h"
#include "library.h"

namespace hvd::tensorflow {

// An operation of a TensorFlow graph that is submitted but not complete. kernels.cpp makes it; a thread of TensorFlow
// or the waiter's thread completes and frees it.
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

using Shape = std::vector<int64_t>;

// Takes the node's inputs, and allocates the outputs whose shapes are known: in the memory of an input if no other code
// uses that input. `shapes`: the graph's static shapes of the inputs, for an operation that keeps shapes; or empty.
// Returns false after it has reported an error to TensorFlow.
bool take_tensors(const TfApi& api, PendingOperation* work, const std::vector<Shape>& shapes);

// The name of a request, and, if it has several tensors, the names of its tensors.
struct Names {
  std::string request;
  std::vector<std::string> tensors;
};
Names names_of(const Operation& operation, const std::string& name, size_t count);

// Lives until the work is submitted, and points into the work's tensors, the names and the shapes.
class Described {
 public:
  Described(const TfApi& api, const PendingOperation& work, const Names& names,
            const std::vector<Shape>& shapes);
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;

  std::vector<hvd_tensor> tensors;
  std::vector<int64_t> splits;

 private:
  void read_shapes(const TfApi& api, const PendingOperation& work);

  std::vector<int64_t> extents_;
};

}  // namespace hvd::tensorflow
