// The kernels of all operations, on the CPU. TensorFlow copies tensors of other devices.
#pragma once

#include "operations.h"

namespace hvd::tensorflow {

void register_kernel(const TfApi& api, const Operation& operation, Status* status);

}  // namespace hvd::tensorflow
