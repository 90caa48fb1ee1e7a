// The operations of graphs, with their names in TensorFlow and their kinds in libhorovod.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tf_api.h"

namespace hvd::tensorflow {

struct Operation {
  const char* name;    // in graphs
  const char* prefix;  // of the names under which ranks meet
  int32_t kind;        // hvd_op_kind, or -1 for HorovodNumber
  bool keeps_shapes;   // outputs are shaped as inputs; else their rows are known at the end only
  bool has_splits;     // one more input and output: rows for and from each rank
};

constexpr size_t kOperationCount = 6;
extern const Operation kOperations[kOperationCount];

// hvd_dtype of a TF_DataType; -1 for those that we do not register. And back.
int32_t dtype_of_tensorflow(int dtype);
int dtype_for_tensorflow(int32_t dtype);
size_t size_of_dtype(int32_t dtype);

// Tells TensorFlow about an operation. `status` has what it says.
void register_operation(const TfApi& api, const Operation& operation, Status* status);

}  // namespace hvd::tensorflow
