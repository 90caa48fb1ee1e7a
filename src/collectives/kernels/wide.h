// Half precision as float32 and back, for sums of some of the hosts: rounded once, at the end.
#pragma once

#include <cstddef>

#include "collectives/kernels/reduce_kernels.h"

namespace hvd::collectives {

inline bool is_half(int32_t dtype) { return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16; }
void widen(float* to, const void* from, int32_t dtype, size_t count);
void narrow(void* to, const float* from, int32_t dtype, size_t count, const Scale& scale);

}  // namespace hvd::collectives
