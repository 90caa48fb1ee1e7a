// Conversion between half-precision storage types and float32. Sums of several hosts accumulate in
// float32 and are rounded once, at the end.
#pragma once

#include <cstddef>

#include "collectives/kernels/reduce_kernels.h"

namespace hvd::collectives {

inline bool is_half(int32_t dtype) { return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16; }
void to_float32(float* to, const void* from, int32_t dtype, size_t count);
void to_storage_type(void* to, const float* from, int32_t dtype, size_t count, const Scale& scale);

}  // namespace hvd::collectives
