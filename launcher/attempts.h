// A job that is tried again: on spare hosts in place of those that fail (--spares), and from the
// beginning after it has failed (--max-restarts).
#pragma once

#include "launcher/cli/options.h"

namespace hvd::launcher {

// Plans and runs; returns horovodrun's exit code, after the sentences that explain it.
int run_attempts(const Options& options);

}  // namespace hvd::launcher
