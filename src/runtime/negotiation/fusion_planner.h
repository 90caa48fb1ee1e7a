// Packs agreed tensors into batches. Pure: equal lists give equal batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/wire/message.h"

namespace hvd::runtime {

struct FusionOptions {
  uint64_t threshold = 0;     // maximum number of bytes in a batch of several names
  bool groups_alone = false;  // a group gets its own batch
};

// One dtype of one agreed name.
struct FusionUnit {
  PlanUnit unit;
  const Request* request = nullptr;
  uint64_t bytes = 0;  // bytes of this dtype; for an allgather, the sum of all ranks
};

// Returns the different dtypes of a request, in the order of first appearance.
std::vector<int32_t> dtypes_of(const Request& request);
uint32_t unit_count(const Request& request);
// Adds the units of an item. `rows`: the rows of all ranks, if the operation has rows.
void add_units(uint32_t item, const Request& request, const std::vector<RankRows>& rows,
               std::vector<FusionUnit>* units);

// Returns whether the units may share a batch, regardless of the threshold.
bool may_share_batch(const FusionUnit& a, const FusionUnit& b);

// Appends to `batches`. Allreduces, allgathers and reducescatters share a batch up to the threshold if their operation,
// dtype, factors, reduction and kind of device are equal, even if other operations are between them. Any other
// operation runs alone. Batches are in the order of their first members.
void plan_fusion(std::span<const FusionUnit> units, const FusionOptions& options,
                 std::vector<std::vector<PlanUnit>>* batches);

}  // namespace hvd::runtime
