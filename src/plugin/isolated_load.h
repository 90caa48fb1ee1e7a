// A plugin of somebody else, tried where it can do no harm: opened, checked and probed in a child
// process with a time limit.
#pragma once

#include <string>

#include "base/status.h"

namespace hvd::plugin {

// Not ok, with a sentence that names the file, when it is refused, says no, crashes or hangs.
Status try_in_child(const std::string& path, double limit_seconds);

}  // namespace hvd::plugin
