// The hosts of the running job of SGE, as `qstat -f -xml` prints them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

// Parses what `qstat -f -ne -s r -xml` prints: the slots of this job in each queue. Pure. An error says why there are none.
Result<std::vector<Host>> parse_sge_hosts(std::string_view text, std::string_view job);

// Asks qstat about this job of the user. An error says why there is no answer.
Result<std::vector<Host>> read_sge_hosts(const std::string& job);

}  // namespace hvd::launcher
