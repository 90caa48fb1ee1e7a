// Describes the tensors of a node to libhorovod.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "completion.h"
#include "horovod/horovod.h"

namespace hvd::tensorflow {

using Shape = std::vector<int64_t>;

// Takes inputs and makes the outputs that are known by now: in the memory of inputs that nobody else
// has. `shapes`: what the graph says about inputs of an operation that keeps shapes, or empty; an
// input that an output replaces is not looked at then. False: TensorFlow has been told why.
bool take_tensors(const TfApi& api, PendingOperation* work, const std::vector<Shape>& shapes);

// The name of a request, and the names of its tensors if there are several.
struct Names {
  std::string request;
  std::vector<std::string> tensors;
};
Names names_of(const Operation& operation, const std::string& name, size_t count);

// Lives until the work is submitted, and points into the work's tensors, the names and the shapes,
// which are as above.
class Described {
 public:
  Described(const TfApi& api, const PendingOperation& work, const Names& names,
            const std::vector<Shape>& shapes);
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;

  std::vector<hvd_tensor> tensors;
  std::vector<int32_t> splits;

 private:
  void read_shapes(const TfApi& api, const PendingOperation& work);

  std::vector<int64_t> extents_;
};

}  // namespace hvd::tensorflow
