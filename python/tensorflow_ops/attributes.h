// The attributes of a node of a graph. The graph may come from a file. Kernels read the attributes at construction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "described.h"
#include "tf_api.h"

namespace hvd::tensorflow {

// Reads attributes until one is missing or invalid; the destructor reports the error to TensorFlow.
class Attributes {
 public:
  Attributes(const TfApi& api, Construction* construction);
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  ~Attributes();

  int32_t number(const char* name);
  double factor(const char* name);  // stored as the bits of a double
  // Returns the number of entries of a list.
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

// Returns shapes read from the number of dimensions and the extents of each shape. Returns no shapes if their number is
// not `count`.
std::vector<Shape> shapes_of(const std::vector<int64_t>& numbers, size_t count);

// Returns the path of calls through which a node has come into the running graph, "call/", outermost first. If a
// function is called twice, its nodes exist twice, under two names. Omits TensorFlow's counters ("cond/then/_12/"),
// which depend on the rest of a rank's graph. The name may also end in a number, "call/name_0": TensorFlow adds the
// number if a function returns a result with the node's name, as gradient functions do.
std::string calls_of(std::string_view running, std::string_view made);

}  // namespace hvd::tensorflow
