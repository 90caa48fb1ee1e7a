// Tests a plugin of a third party in a child process with a time limit: opens it, checks its record
// and calls its probe. The catalogue calls it.
#pragma once

#include <string>

#include "base/status.h"

namespace hvd::plugin {

// Not ok, with a sentence that names the file, when it is refused, says no, crashes or hangs.
Status try_in_child(const std::string& path, double limit_seconds);

}  // namespace hvd::plugin
