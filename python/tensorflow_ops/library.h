// The libhorovod that Python has opened, and the counters of unnamed calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "horovod/horovod.h"
#include "tf_api.h"

namespace hvd::tensorflow {

// The table of the operations that a TensorFlow graph can have, with their names in TensorFlow and their kinds in
// libhorovod. library.cpp registers them when Python loads this module.
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
// Registers the kernel of an operation on the CPU with TensorFlow, which stores its result in `status`. The kernel
// submits the tensors to libhorovod. TensorFlow copies tensors of other devices to the host and back.
void register_kernel(const TfApi& api, const Operation& operation, Status* status);

struct Library {
  decltype(&::hvd_submit) submit;
  decltype(&::hvd_wait) wait;
  decltype(&::hvd_poll) poll;
  decltype(&::hvd_get_output) get_output;
  decltype(&::hvd_release) release;
  // HorovodNumber's `what`: 0 rank, 1 local rank, 2 size, 3 local size, 4 included; 5 is `is_due`.
  decltype(&::hvd_rank) rank;
  decltype(&::hvd_local_rank) local_rank;
  decltype(&::hvd_process_set_size) size;
  decltype(&::hvd_local_size) local_size;
  decltype(&::hvd_process_set_included) included;
};

// Returns NULL until Python has set the library.
const Library* library();

// Returns `tf.noname.<n>`: equal on all ranks of a process set that run their unnamed calls in the same order.
std::string next_name(const char* prefix, int32_t process_set);

// Called before each reduction with the number of its check of replicas. Returns whether Python must run first;
// otherwise counts the reduction down. A graph of another process has no check here.
bool is_due(int32_t check);

constexpr size_t kErrorSize = 4096;

}  // namespace hvd::tensorflow
