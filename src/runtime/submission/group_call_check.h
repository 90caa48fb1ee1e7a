// Checks the arguments of hvd_group_create and hvd_group_submit, and copies a call into a Submission. Runtime
// calls it on the submitting thread.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "horovod/horovod.h"
#include "runtime/submission/submission.h"

namespace hvd::runtime {

// Every refusal is one sentence that says what is wrong.
Status check_group(const std::vector<int32_t>& ranks, int32_t rank, int32_t size);
Status check_group_call(const hvd_group_call& from, const GroupMembers& members, int32_t rank);
void copy_group_call(const hvd_group_call& from, std::shared_ptr<const GroupMembers> members,
                     Submission* to);

}  // namespace hvd::runtime
