// The attributes of a node of a graph. The graph may come from a file. Kernels read them when they are
// made.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "described.h"
#include "tf_api.h"

namespace hvd::tensorflow {

// Reads attributes until one is missing or impossible; the destructor tells TensorFlow.
class Attributes {
 public:
  Attributes(const TfApi& api, Construction* construction);
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  ~Attributes();

  int32_t number(const char* name);
  double factor(const char* name);  // from the bits of a double
  // The number of entries of a list.
  size_t count(const char* name);
  std::vector<int64_t> numbers(const char* name);
  std::string text(const char* name);

 private:
  bool is_fine() const;
  int64_t int64_number(const char* name);

  const TfApi& api_;
  Construction* construction_;
  Status* status_;
};

// From the number of dimensions and the extents of each. Empty unless there are `count` shapes.
std::vector<Shape> shapes_of(const std::vector<int64_t>& numbers, size_t count);

// The calls through which a node has come into the graph that runs, "call/", outermost first. A function
// that another calls twice has its nodes twice, under one name each. Without TensorFlow's counters
// ("cond/then/_12/"), which count whatever else a rank's graph has. The name may also end in a number, "call/name_0":
// TensorFlow adds it to a node whose function returns a result of the node's name, as functions do for a gradient.
std::string calls_of(std::string_view running, std::string_view made);

}  // namespace hvd::tensorflow
