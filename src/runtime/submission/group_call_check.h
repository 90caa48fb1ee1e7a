// Checks the arguments of hvd_group_create and hvd_group_submit, and copies a call into a Submission.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "horovod/horovod.h"
#include "runtime/submission/submission.h"

namespace hvd::runtime {

// An operation of groups: its name, the hvd_op_kind that implements it, and its arguments.
struct GroupOp {
  std::string_view name;  // empty: not an operation of groups
  int32_t runs_as = 0;
  bool reduces = false;
  bool has_root = false;
  bool root_writes = false;  // only the root has an output
  bool root_reads = false;   // only the root has an input
};
GroupOp group_op(int32_t op);

// Returns an error of one sentence about the wrong argument.
Status check_group(const std::vector<int32_t>& ranks, int32_t rank, int32_t size);
// Like check_group, for a call. `rank`: this member's rank in the job.
Status check_group_call(const hvd_group_call& from, int32_t rank, const GroupMembers& members);
void copy_group_call(const hvd_group_call& from, int32_t rank,
                     std::shared_ptr<const GroupMembers> members, Submission* to);

}  // namespace hvd::runtime
