// The launcher's own exit codes.
#pragma once

namespace hvd::launcher {

constexpr int kExitLauncher = 1;   // a lost host, or an error of the launcher
constexpr int kExitBadInput = 2;   // nothing was started
constexpr int kExitTimeout = 124;  // the job exceeded its time limit, or hung (--on-hang stop)
constexpr int kExitSignal = 128;   // added to the number of the signal that ended the job

}  // namespace hvd::launcher
