// Reduces arrays element by element: dtype x operation, half and bfloat16 in float32, scales fused
// in. Pure functions of memory; any thread. reduce_function picks the fastest variant for the
// processor.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "horovod/types.h"

namespace hvd::collectives {

// A factor in the form that the kernels take. The kernels divide integers when the factor is 1/n,
// so that an average is exact, and multiply them in float64 otherwise. Both truncate toward zero.
struct Scale {
  double factor = 1;
  int64_t divisor = 0;  // 0: multiply
  bool active = false;
};
Scale scale_by(double factor);

// result[i] = after * (before * inputs[0][i] op before * inputs[1][i] op ...), in that order.
// `result` may be one of the inputs; no other overlap. input_count is at least 1.
using ReduceFunction = void (*)(void* result, const void* const* inputs, size_t input_count,
                                size_t count, const Scale& before, const Scale& after);

// Returns null when the operation does not support the type.
ReduceFunction reduce_function(hvd_dtype dtype, hvd_reduce_op op);

// Fills with the neutral element: 0 for sum, 1 for product, the extremes for min and max.
void fill_neutral(void* out, hvd_dtype dtype, hvd_reduce_op op, size_t count);

// The variants, one per instruction set; see reduce_kernels_body.h.
namespace baseline {
ReduceFunction find(int dtype, int op);
}
namespace avx2 {
ReduceFunction find(int dtype, int op);
}
namespace avx512 {
ReduceFunction find(int dtype, int op);
}

}  // namespace hvd::collectives
