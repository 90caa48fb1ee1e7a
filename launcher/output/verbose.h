// Prints steps of the launch with --verbose, each with the time since the launch began.
#pragma once

#include <string_view>

namespace hvd::launcher {

// "1.24 s: " + text, as an info line of the log. The first call is the begin.
void explain(std::string_view text);

}  // namespace hvd::launcher
