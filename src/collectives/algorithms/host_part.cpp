#include "collectives/algorithms/host_part.h"

#include <bit>
#include <cmath>

#include "collectives/kernels/half_conversion.h"

namespace hvd::collectives {

HostPart host_part_of(const hvd_batch& batch, const Reduction& reduction, bool sends_partial_sums,
                      size_t most_ranks) {
  HostPart part{false, reduction.reduce, reduction.none, reduction.after};
  if (!is_half(batch.dtype)) return part;
  const bool several_ranks = most_ranks > 1;
  const bool adds = batch.reduce_op == HVD_SUM || batch.reduce_op == HVD_PRODUCT;
  const bool is_average = reduction.after.divisor > 0;
  // The division of an average prevents overflow, unless a factor above 1 multiplies first.
  const bool fits = !reduction.before.active ||
                    (is_average && several_ranks && std::abs(reduction.before.factor) <= 1);
  if (fits && (!adds || !several_ranks)) return part;
  if (fits && is_average && !sends_partial_sums) {
    if (batch.dtype == HVD_FLOAT16) {
      const auto power = static_cast<double>(std::bit_ceil(most_ranks));
      part.within = scale_by(1 / power);
      part.after = scale_by(power / static_cast<double>(reduction.after.divisor));
    }
    return part;
  }
  part.is_float32 = true;
  part.reduce = part_function(static_cast<hvd_dtype>(batch.dtype),
                              static_cast<hvd_reduce_op>(batch.reduce_op));
  return part;
}

}  // namespace hvd::collectives
