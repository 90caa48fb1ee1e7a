// The table of the operations of hvd_op_kind, for checks, agreement, fusion, metrics and timeline.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "horovod/types.h"

namespace hvd {

// The row counts that a rank sends with its request, because ranks may have different counts.
enum class RowCounts : uint8_t {
  kNone,
  kPerTensor,  // the rows of each tensor
  kPerRank     // the rows for each rank (splits)
};

struct OpTraits {
  std::string_view name = {};      // empty: no operation has this number
  std::string_view activity = {};  // in the timeline, after a backend's name; may be empty
  bool is_nameless = false;        // users give it no name and no tensors
  bool has_root = false;           // only the root's input is read
  bool reduces = false;            // has a reduction and scale factors
  bool makes_outputs = false;      // tensors have rows, and the runtime allocates the results
  bool fuses = false;              // a batch may hold several such operations
  bool runs_with_joined = false;   // ranks that have joined take part, with neutral values
  bool is_point_to_point = false;  // between two ranks, without negotiation
  RowCounts row_counts = RowCounts::kNone;
};

constexpr size_t kOpCount = 10;  // the highest hvd_op_kind plus 1; 4 is unused

// Indexed by the number of the operation.
inline constexpr auto kOpTraits = [] {
  std::array<OpTraits, kOpCount> table{};
  table[HVD_ALLREDUCE] = {.name = "allreduce",
                          .activity = "ALLREDUCE",
                          .reduces = true,
                          .fuses = true,
                          .runs_with_joined = true};
  table[HVD_ALLGATHER] = {.name = "allgather",
                          .activity = "ALLGATHER",
                          .makes_outputs = true,
                          .fuses = true,
                          .row_counts = RowCounts::kPerTensor};
  table[HVD_BROADCAST] = {.name = "broadcast", .activity = "BCAST", .has_root = true};
  table[HVD_JOIN] = {.name = "join", .is_nameless = true};
  table[HVD_ALLTOALL] = {.name = "alltoall",
                         .activity = "ALLTOALL",
                         .makes_outputs = true,
                         .row_counts = RowCounts::kPerRank};
  table[HVD_BARRIER] = {.name = "barrier", .is_nameless = true, .runs_with_joined = true};
  table[HVD_REDUCESCATTER] = {.name = "reducescatter",
                              .activity = "REDUCESCATTER",
                              .reduces = true,
                              .makes_outputs = true,
                              .fuses = true};
  table[HVD_SEND] = {.name = "send", .activity = "SEND", .is_point_to_point = true};
  table[HVD_RECV] = {.name = "recv", .activity = "RECV", .is_point_to_point = true};
  return table;
}();

// Returns a row with an empty name for an unknown number.
constexpr const OpTraits& traits_of(int32_t op) {
  constexpr int32_t kUnused = 4;
  const bool is_in_table = op >= 0 && static_cast<size_t>(op) < kOpCount;
  return kOpTraits[static_cast<size_t>(is_in_table ? op : kUnused)];
}
static_assert(traits_of(-1).name.empty() && traits_of(kOpCount).name.empty());

}  // namespace hvd
