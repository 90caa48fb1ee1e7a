// The arithmetic of Adasum on one piece of two vectors, in float64 for every type. Pure functions
// of memory; any thread.
#pragma once

#include <stddef.h>

#include "horovod/types.h"

namespace hvd::collectives {

// Returns whether Adasum supports the type, which is true for floating-point types.
bool adasum_knows(hvd_dtype dtype);

// Dot products over the elements of a piece. The products of two pieces may be added.
struct Products {
  double ab = 0, aa = 0, bb = 0;
};
Products products_of(hvd_dtype dtype, const void* a, const void* b, size_t count);

// The factors of the two vectors in their combination.
struct Weights {
  double a, b;
};
Weights weights_of(const Products& products);

// Computes out = weights.a * a + weights.b * b. `out` may be `a`.
void combine(hvd_dtype dtype, const void* a, const void* b, const Weights& weights, double* out,
             size_t count);
// Convert from and to float64; to_storage_type multiplies by a factor and rounds once.
void to_float64(hvd_dtype dtype, const void* in, double* out, size_t count);
void to_storage_type(hvd_dtype dtype, const double* in, double factor, void* out, size_t count);

}  // namespace hvd::collectives
