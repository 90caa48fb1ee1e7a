#include "base/operations/op_traits.h"

#include <doctest/doctest.h>

#include <set>

namespace hvd {

TEST_CASE("each operation has a row, and a number without an operation has no name") {
  std::set<std::string_view> names;
  for (const int32_t op : {HVD_ALLREDUCE, HVD_ALLGATHER, HVD_BROADCAST, HVD_JOIN, HVD_ALLTOALL,
                           HVD_BARRIER, HVD_REDUCESCATTER, HVD_SEND, HVD_RECV}) {
    const OpTraits& traits = traits_of(op);
    names.insert(traits.name);
    CHECK(traits.is_nameless == traits.activity.empty());
    // Ranks exchange row counts only if the runtime must allocate the result.
    CHECK((traits.row_counts == RowCounts::kNone || traits.makes_outputs));
  }
  CHECK(names == std::set<std::string_view>{"allreduce", "allgather", "broadcast", "join",
                                            "alltoall", "barrier", "reducescatter", "send",
                                            "recv"});
  for (const int32_t op : {-1, 4, static_cast<int32_t>(kOpCount), 64, INT32_MAX, INT32_MIN}) {
    CHECK(traits_of(op).name.empty());
  }
}

}  // namespace hvd
