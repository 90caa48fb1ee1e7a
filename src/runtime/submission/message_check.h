// Checks the arguments of hvd_send and hvd_recv and copies them into a Submission. Runtime calls
// these functions on the submitting thread.
#pragma once

#include "base/status.h"
#include "horovod/horovod.h"
#include "runtime/submission/set_table.h"
#include "runtime/submission/submission.h"

namespace hvd::runtime {

// Returns an error of one sentence that names the call and the wrong argument. `set` is null if the
// process set does not exist.
Status check_message(int32_t op, const hvd_message& from, int32_t rank, const SetMembers* set);
void copy_message(int32_t op, const hvd_message& from, const SetMembers& set, Submission* to);

}  // namespace hvd::runtime
