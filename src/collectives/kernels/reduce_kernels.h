// Reduces arrays element by element: dtype x operation, float16 and bfloat16 in float32, with the
// scaling fused. Pure functions of memory; any thread. reduce_function picks the fastest variant
// for the processor.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <cstddef>

#include "horovod/types.h"

namespace hvd::collectives {

// The scaling of each element. A factor multiplies: in float32 for float16, bfloat16 and float32,
// in float64 for float64 and integers. A divisor divides, for an average. Integers are truncated
// toward zero. Floating-point quotients are correctly rounded.
struct Scale {
  double factor = 1;        // factor, or the rounded inverse of the divisor
  int64_t divisor = 0;      // 0: multiply
  bool is_inexact = false;  // `factor` is rounded, so a product may differ from the quotient
  bool active = false;
};
Scale scale_by(double factor);
// `divisor` is at least 1.
Scale divide_by(int32_t divisor);

// result[i] = after * (before * inputs[0][i] op before * inputs[1][i] op ...), in that order.
// `result` may be one of the inputs; no other overlap. input_count is at least 1.
using ReduceFunction = void (*)(void* result, const void* const* inputs, size_t input_count,
                                size_t count, const Scale& before, const Scale& after);

// Returns null if the operation does not support the type. A NaN in any input makes the result NaN,
// also for minima and maxima; all NaNs have the same bits.
ReduceFunction reduce_function(hvd_dtype dtype, hvd_reduce_op op);

// Like reduce_function(), for float16 and bfloat16 inputs and a float32 result: an unrounded part
// of a sum or product. Null for other types.
ReduceFunction part_function(hvd_dtype dtype, hvd_reduce_op op);

// Fills `out` with the neutral element: 0 for sum, 1 for product, the extremes for min and max.
void fill_neutral(void* out, hvd_dtype dtype, hvd_reduce_op op, size_t count);

// The variants, one per instruction set; see reduce_kernels_body.h.
namespace baseline {
ReduceFunction find(int dtype, int op);
ReduceFunction find_part(int dtype, int op);
}  // namespace baseline
namespace avx2 {
ReduceFunction find(int dtype, int op);
ReduceFunction find_part(int dtype, int op);
}  // namespace avx2
namespace avx512 {
ReduceFunction find(int dtype, int op);
ReduceFunction find_part(int dtype, int op);
}  // namespace avx512

// Returns whether the type is stored in 16 bits and reduced in float32.
inline bool is_half(int32_t dtype) { return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16; }
// Converts `count` elements of a half-precision type to float32.
void to_float32(float* to, const void* from, int32_t dtype, size_t count);
// Scales `count` float32 elements and rounds each once to a half-precision type.
void to_storage_type(void* to, const float* from, int32_t dtype, size_t count, const Scale& scale);

// Returns whether Adasum supports the type, which it does for the floating-point types.
bool adasum_knows(hvd_dtype dtype);

// Dot products of a piece of two vectors, for Adasum. The products of two pieces may be added.
struct Products {
  double ab = 0, aa = 0, bb = 0;
};
// Computes the dot products in float64 for every type.
Products products_of(hvd_dtype dtype, const void* a, const void* b, size_t count);

// The factors of the two vectors in Adasum's combination.
struct Weights {
  double a, b;
};
// Returns Adasum's factors for vectors with these products.
Weights weights_of(const Products& products);

// Computes out = weights.a * a + weights.b * b. `out` may be `a`.
void combine(hvd_dtype dtype, const void* a, const void* b, const Weights& weights, double* out,
             size_t count);
// Converts `count` elements to float64.
void to_float64(hvd_dtype dtype, const void* in, double* out, size_t count);
// Multiplies `count` float64 elements by a factor and rounds each once to the type.
void to_storage_type(hvd_dtype dtype, const double* in, double factor, void* out, size_t count);

}  // namespace hvd::collectives
