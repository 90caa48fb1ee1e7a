// The tensors of a node, and how libhorovod gets to see them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "completion.h"
#include "horovod/horovod.h"

namespace hvd::tensorflow {

// Takes inputs and makes the outputs that are known by now: in the memory of inputs that nobody else
// has. False: TensorFlow has been told why.
bool take_tensors(const TfApi& api, Work* work);

// Lives until the work is submitted, and points into the work's tensors.
class Described {
 public:
  Described(const TfApi& api, const Work& work);
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;

  // Of the request.
  std::string name() const;

  std::vector<hvd_tensor> tensors;
  std::vector<int32_t> splits;

 private:
  const Work& work_;
  std::vector<int64_t> extents_;
  std::vector<std::string> names_;
};

}  // namespace hvd::tensorflow
