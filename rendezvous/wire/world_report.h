// What a rank tells the agent above it before it meets the others: which world it is in. The
// launcher compares, since a program that does not see the launcher's variables makes a world of
// its own. Both ends use this one; pure.
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

// The abstract name (net/packet_socket) at which the agent with this process id hears them. It
// answers each with one byte, once it has passed the report on.
std::string world_report_place(int64_t agent);

Bytes encode(const WorldReport& report);
// Refuses what no world can have.
Result<WorldReport> decode_world_report(ByteView bytes);

}  // namespace hvd::rendezvous
