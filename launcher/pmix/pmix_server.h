// A PMIx server for the ranks of one host, the only file of the launcher that includes PMIx. Its
// callbacks run on PMIx's own thread and never block: each fence waits on its own thread. The helper's
// main starts it.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/pmix/conversation.h"

namespace hvd::launcher {

// Serves from here on, with its files in `folder`. Once in a process. Writes messages for the agent on standard output:
// the port, and the abstract name at which it serves PMI-1; {rank, how often} when a rank has connected; {} when all
// ranks have met in a fence; {sentence} when a fence, a barrier or a connection has failed.
Status start_pmix_server(const PmixOrder& order, const std::string& folder);
// Cleans up after ranks that did not.
void end_pmix_server();

}  // namespace hvd::launcher
