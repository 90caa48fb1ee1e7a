// The kernels in AVX2; compiled with -mavx2 where the compiler knows it.
#include "base/half.h"
#include "collectives/kernels/reduce_kernels.h"

namespace hvd::collectives::avx2 {
namespace {
#include "collectives/kernels/reduce_kernels_body.h"
}
ReduceFunction find(int dtype, int op) { return find_kernel(dtype, op); }
}  // namespace hvd::collectives::avx2
