// Compares the versions of Python and of packages between hosts, and describes the differences. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hvd::launcher {

// {"Python", "3.11.2"}, {"horovod", "1.0"}; what a host lacks is not named.
using Versions = std::vector<std::pair<std::string, std::string>>;

// A sentence for each host whose Python or horovod (major and minor number) is not that of most
// hosts, or of the first where no version is most hosts'. A host that was not asked has none.
std::vector<std::string> describe_differences(const std::vector<std::string>& hosts,
                                              const std::vector<Versions>& versions);

}  // namespace hvd::launcher
