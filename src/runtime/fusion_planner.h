// Which agreed tensors run as one batch. Pure: the same list gives the same batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/message.h"

namespace hvd::runtime {

// One dtype of one agreed name.
struct FusionUnit {
  PlanUnit unit;
  const Request* request = nullptr;
  uint64_t bytes = 0;  // of that dtype
};

// The dtypes of a request, each once, in the order of first appearance.
std::vector<int32_t> dtypes_of(const Request& request);
uint64_t bytes_of(const Request& request, int32_t dtype);

// Appends to `batches`. Allreduces of the same dtype, scales, reduction and device share a batch
// while it stays within `threshold` bytes; others between them do not part them. Everything else
// runs alone. Batches are in the order of their first members.
void plan_fusion(std::span<const FusionUnit> units, uint64_t threshold,
                 std::vector<std::vector<PlanUnit>>* batches);

}  // namespace hvd::runtime
