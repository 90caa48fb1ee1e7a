// The world report, a message with a rank and a size. A rank sends this report to its agent in hvd.init, before the
// rank waits for the other ranks. By comparing the reports, the launcher detects missing ranks, and programs that
// started a separate world because they lack the launcher's variables. When all ranks of the world have connected, one
// rank of each host (in an elastic job each rank) sends a second report. Stateless, without I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace hvd::rendezvous {

// An encoded report contains these members in this order.
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
// Refuses a report whose rank is not below its size.
Result<WorldReport> decode_world_report(ByteView bytes);

}  // namespace hvd::rendezvous
