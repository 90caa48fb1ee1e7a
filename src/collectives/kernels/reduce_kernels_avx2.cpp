// The AVX2 kernels, compiled with AVX2 flags if the compiler has them.
#include "base/half.h"
#include "base/platform_cpu.h"
#include "collectives/kernels/reduce_kernels.h"

namespace hvd::collectives::avx2 {
namespace {
#include "collectives/kernels/reduce_kernels_body.h"
}
ReduceFunction find(int dtype, int op) { return find_kernel(dtype, op); }
ReduceFunction find_part(int dtype, int op) { return find_part_kernel(dtype, op); }
}  // namespace hvd::collectives::avx2
