// The variables by which other launchers pass a process its rank. Pure.
#pragma once

#include <string_view>

namespace hvd::launcher {

// A pattern is a name, or the beginning of names when it ends in '*'.
bool fits(std::string_view name, std::string_view pattern);

// A rank that finds one of these would take itself for a rank of the other launcher, which may have
// started horovodrun, or an agent that joins.
bool is_of_other_launcher(std::string_view name);

}  // namespace hvd::launcher
