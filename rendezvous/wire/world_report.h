// The world report: a rank sends its rank and size to its agent in hvd.init, before it waits for
// the other ranks. The launcher compares the reports, since a program without the launcher's
// variables starts its own world, and detects the ranks for which the others wait. When all ranks
// of the world have connected, one rank of each host (in an elastic job each rank) sends a second
// report. Stateless, without I/O; called by the runtime and the agent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace hvd::rendezvous {

// Members are sent in their order.
struct WorldReport {
  int32_t rank = 0;
  int32_t size = 1;
  bool has_met = false;
  std::string start;  // equal on all ranks that start together; empty: unknown
  std::string ranks;  // "0,2": the ranks of the job that start together; empty: all
};

// Prefix of the names of all agents' sockets.
constexpr std::string_view kWorldReportNames = "horovod-agent/";
// Returns the prefix of the abstract name (net/packet_socket) of the socket at which the agent with this
// process id accepts reports. Random digits follow, so that no other user can bind the name first.
// The agent answers each report with one byte after it has sent the report to the launcher.
std::string world_report_prefix(int64_t agent);

Bytes encode(const WorldReport& report);
// Refuses a rank that is not in a world of that size.
Result<WorldReport> decode_world_report(ByteView bytes);

}  // namespace hvd::rendezvous
