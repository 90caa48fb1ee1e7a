// A PMIx server for the ranks of one host. Only pmix_server.cpp includes PMIx. The server's callbacks run on
// PMIx's own thread and never block: each fence waits on a separate thread. The main() of the PMIx helper starts
// the server.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/pmix/conversation.h"

namespace hvd::launcher {

// Starts to serve, with its files in `folder`. Call once per process. Writes messages for the agent to standard output:
// the port, and the abstract name for PMI-1; {rank, count} when a rank has connected; {} when all ranks have entered a
// fence; {sentence} when a fence, a barrier or a connection has failed.
Status start_pmix_server(const PmixOrder& order, const std::string& folder);
// Cleans up after ranks that did not finalize.
void end_pmix_server();

}  // namespace hvd::launcher
