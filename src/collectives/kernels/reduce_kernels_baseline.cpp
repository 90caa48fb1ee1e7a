// The kernels in the baseline instructions of the architecture.
#include "base/half.h"
#include "base/platform_cpu.h"
#include "collectives/kernels/reduce_kernels.h"

namespace hvd::collectives::baseline {
namespace {
#include "collectives/kernels/reduce_kernels_body.h"
}
ReduceFunction find(int dtype, int op) { return find_kernel(dtype, op); }
ReduceFunction find_part(int dtype, int op) { return find_part_kernel(dtype, op); }
}  // namespace hvd::collectives::baseline
