// Checks the arguments of hvd_submit, hvd_send and hvd_recv, and copies them into a Submission.
#pragma once

#include <atomic>
#include <string_view>

#include "base/status.h"
#include "horovod/horovod.h"
#include "runtime/submission/set_table.h"
#include "runtime/submission/submission.h"

namespace hvd::runtime {

// Checks that this rank may use the process set, which is null if it does not exist.
Status check_member(const hvd_submission& from, int32_t rank, const SetMembers* set);

// Fills a submission from the caller's struct. Sets *name, and *shared_name if the name may be in flight
// twice. An error is one sentence that names the operation and the wrong argument.
Status copy_submission(const hvd_submission& from, int32_t rank, const SetMembers& set,
                       Submission* to, std::string_view* name, bool* shared_name);

// Checks the device of the tensors. `own`: this rank's device, HVD_CPU until the first device tensor sets it.
Status check_device(const hvd_submission& from, bool has_devices, std::atomic<int32_t>* own);

// Returns an error of one sentence that names the call and the wrong argument. `set` is null if the
// process set does not exist.
Status check_message(int32_t op, const hvd_message& from, int32_t rank, const SetMembers* set);
void copy_message(int32_t op, const hvd_message& from, const SetMembers& set, Submission* to);

}  // namespace hvd::runtime
