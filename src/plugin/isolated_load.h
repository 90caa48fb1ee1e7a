// Tests a plugin of a third party in a child process with a time limit: opens it, checks its record
// and calls its probe. The catalogue calls try_in_child().
#pragma once

#include <string>

#include "base/status.h"

namespace hvd::plugin {

// Returns an error that names the file if its record is refused, if its probe fails, or if it crashes or hangs.
Status try_in_child(const std::string& path, double limit_seconds);

}  // namespace hvd::plugin
