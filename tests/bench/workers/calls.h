// Allreduces of float32 through the C ABI, each identified by a name.
#pragma once

#include <horovod/horovod.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace bench {

inline char error[1024];

inline void check(int status) {
  if (status != HVD_OK) throw std::runtime_error(error);
}

// `data` must stay valid until finish().
inline hvd_handle submit(const char* name, float* data, size_t count) {
  const int64_t shape = static_cast<int64_t>(count);
  hvd_tensor tensor{};
  tensor.dtype = HVD_FLOAT32;
  tensor.ndim = 1;
  tensor.shape = &shape;
  tensor.input = tensor.output = data;
  hvd_submission submission{};
  submission.struct_size = sizeof(submission);
  submission.op = HVD_ALLREDUCE;
  submission.reduce_op = HVD_SUM;
  submission.name = name;
  submission.device = HVD_CPU;
  submission.flags = HVD_KEEPS_TENSORS;  // a failure ends the process
  submission.tensor_count = 1;
  submission.tensors = &tensor;
  hvd_handle handle = 0;
  check(hvd_submit(&submission, &handle, error, sizeof(error)));
  return handle;
}

inline void finish(hvd_handle handle) {
  check(hvd_wait(handle, -1, error, sizeof(error)));
  check(hvd_release(handle, error, sizeof(error)));
}

}  // namespace bench
