// Describes the tensors of a node of a TensorFlow graph as hvd_tensors. kernels.cpp calls it when the node runs, on a
// thread of TensorFlow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "completion.h"
#include "horovod/horovod.h"

namespace hvd::tensorflow {

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
