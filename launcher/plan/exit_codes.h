// The launcher's own exit codes.
#pragma once

namespace hvd::launcher {

constexpr int kExitLauncher = 1;   // a host was lost, or the launcher itself could not go on
constexpr int kExitBadInput = 2;   // nothing was started
constexpr int kExitTimeout = 124;  // the job took longer than it may
constexpr int kExitSignal = 128;   // and the signal's number

}  // namespace hvd::launcher
