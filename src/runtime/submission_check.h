// What a caller hands to hvd_submit, checked and copied. Any thread.
#pragma once

#include <string_view>

#include "base/status.h"
#include "horovod/horovod.h"
#include "runtime/submission.h"

namespace hvd::runtime {

// Fills a submission from the caller's struct. Every refusal is one sentence that names the work
// and what is wrong with it. Gives the name it goes by, and whether that may be in flight twice.
Status copy_submission(const hvd_submission& from, int32_t rank, int32_t size, Submission* to,
                       std::string_view* name, bool* shared_name);

}  // namespace hvd::runtime
