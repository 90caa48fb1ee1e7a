// A world report: a rank names its world to its agent before it connects to the other ranks. The
// launcher compares the reports, since a program that does not see the launcher's variables starts a
// world of its own. Both ends use this code; pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace hvd::rendezvous {

struct WorldReport {
  int32_t rank = 0;
  int32_t size = 1;
};

// The abstract name (net/packet_socket) of the socket at which the agent with this process id takes
// reports. The agent answers each report with one byte, once it has passed the report on.
std::string world_report_socket_name(int64_t agent);

Bytes encode(const WorldReport& report);
// Refuses what no world can have.
Result<WorldReport> decode_world_report(ByteView bytes);

}  // namespace hvd::rendezvous
