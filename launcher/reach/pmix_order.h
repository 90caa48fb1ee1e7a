// Decides whether a job registers its ranks with PMIx, which requires PMIx on all hosts, and adds the registration to
// each host's start order. HostStartup calls this code. Pure.
#pragma once

#include <vector>

#include "launcher/hosts/host_table.h"
#include "launcher/plan/host_remarks.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

// Removes kPmix from each host's list. Returns true if every list had it.
bool take_pmix(std::vector<Versions>& versions);
// Adds the placement of all ranks to each host's order.
void order_pmix(const HostTable& hosts, std::vector<StartOrder>& orders);

}  // namespace hvd::launcher
