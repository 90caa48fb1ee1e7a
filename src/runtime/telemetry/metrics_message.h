// Messages between ranks for a request for the metrics of all ranks, as bytes. MetricsService sends
// the messages over the service bus. Decoding checks everything.
//
//   rank -> root  ask      a rank requests the metrics of all ranks
//                 values   a rank's metrics
//   root -> all   collect  requests the metrics of each rank
//                 result   the metrics of the ranks that answered in time, and the ranks that asked
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/metrics/metrics.h"
#include "base/status.h"
#include "runtime/telemetry/question.h"

namespace hvd::runtime {

// The number of complete calls of a group (docs/process-sets.md).
struct GroupCalls {
  std::string name;
  uint64_t completed;
};

// The metrics of one rank.
struct MetricsOfRank {
  int32_t rank = 0;
  std::string host;
  Metrics metrics;
  std::vector<GroupCalls> groups = {};
};

enum class MetricsMessageKind : uint8_t { kAsk = 1, kValues = 2, kCollect = 3, kResult = 4 };

struct MetricsMessage {
  MetricsMessageKind kind = MetricsMessageKind::kAsk;
  uint32_t number = 0;  // ask: number of the question; else: number of the collection
  std::vector<Ask> asks;
  std::vector<MetricsOfRank> values;
};

void encode(const MetricsMessage& message, ByteWriter& out);
Status decode(ByteView bytes, MetricsMessage* message);

}  // namespace hvd::runtime
