// The processor cores that this process has: the affinity mask, and the quotas of its cgroups.
#pragma once

#include <string>

namespace hvd {

// Cores of the affinity mask, at least 1.
int affinity_cores();
// The affinity mask, cut by the quotas of the cgroups: perhaps a fraction.
double available_cores();
// The quota in the text of a cgroup's cpu.max ("max 100000", "50000 100000"); a large number without limit.
double cores_of_cpu_max(const std::string& text);

}  // namespace hvd
