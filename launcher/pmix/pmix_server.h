// A PMIx server for the ranks of one host, the only file of the launcher that includes PMIx. Its
// callbacks run on PMIx's own thread and never block: each fence waits on its own thread. The helper's
// main starts it.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "launcher/pmix/conversation.h"

namespace hvd::launcher {

// The library's version.
std::string pmix_version();
// Serves from here on, files of it in `folder`. Once in a process.
Status start_pmix_server(const std::string& folder, const std::string& host_name, size_t host);
// Tells it the job; what each rank of this host is to find in its environment.
Result<std::map<int, PmixEnvironment>> serve_job(const PmixOrder& order, const std::string& folder);
// Cleans up after ranks that did not.
void end_pmix_server();

}  // namespace hvd::launcher
