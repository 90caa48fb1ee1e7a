// Runs a job, and runs it again after a failure: on spare hosts in place of failed ones (--spares),
// and from the beginning (--max-restarts). The launcher's main calls it.
#pragma once

#include "launcher/cli/options.h"

namespace hvd::launcher {

// Plans and runs; returns horovodrun's exit code, after the sentences that explain it.
int run_attempts(const Options& options);

}  // namespace hvd::launcher
