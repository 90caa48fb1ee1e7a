// The table of the operations that a TensorFlow graph can have, with their names in TensorFlow and their kinds in
// libhorovod. library.cpp registers them when Python loads this module.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tf_api.h"

namespace hvd::tensorflow {

struct Operation {
  const char* name;    // TensorFlow's name of the operation
  const char* prefix;  // begins the names by which ranks match their tensors
  int32_t kind;        // hvd_op_kind, or -1 for HorovodNumber
  // Outputs have the shapes of the inputs; otherwise, the number of their rows is known only at the end.
  bool keeps_shapes;
  bool has_splits;  // one more input and output: rows for and from each rank
  bool has_call;    // one more input, the last: the number of the function call
};

constexpr size_t kOperationCount = 11;
extern const Operation kOperations[kOperationCount];

// dtype_of_tensorflow() converts a TF_DataType to its hvd_dtype, or to -1 if none exists; the other function
// converts back.
int32_t dtype_of_tensorflow(int dtype);
int dtype_for_tensorflow(int32_t dtype);
size_t size_of_dtype(int32_t dtype);

// Registers an operation with TensorFlow, which stores its result in `status`.
void register_operation(const TfApi& api, const Operation& operation, Status* status);

}  // namespace hvd::tensorflow
