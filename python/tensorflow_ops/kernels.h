// The kernels of all operations, on the CPU: the code that TensorFlow runs for a node of a graph. A kernel submits the
// tensors to libhorovod. TensorFlow copies tensors of other devices to the host and back.
#pragma once

#include "library.h"

namespace hvd::tensorflow {

// Registers the kernel of an operation with TensorFlow, which stores its result in `status`. library.cpp calls it once
// for each operation.
void register_kernel(const TfApi& api, const Operation& operation, Status* status);

}  // namespace hvd::tensorflow
