// The environment variables with which other launchers pass a process its rank. Pure.
#pragma once

#include <string_view>

namespace hvd::launcher {

// A pattern is a name, or a prefix with a final '*'.
bool fits(std::string_view name, std::string_view pattern);

// Returns whether a rank that finds this variable would act as a rank of another launcher. That launcher may
// have started horovodrun, or an agent that joins.
bool is_of_other_launcher(std::string_view name);

}  // namespace hvd::launcher
