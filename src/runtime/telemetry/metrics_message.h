// Messages between ranks when one asks for the metrics of all, as bytes. MetricsService sends them over the service bus.
// Decoding trusts nothing.
//
//   rank -> root  ask      a rank asks for the metrics of all ranks
//                 values   a rank's metrics
//   root -> all   collect  each rank is to send its metrics
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

// The number of the last call of a group (docs/process-sets.md) that is complete.
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
  uint32_t number = 0;  // ask: number that the asker chose; else: number of the collection
  std::vector<Ask> asks;
  std::vector<MetricsOfRank> values;
};

void encode(const MetricsMessage& message, ByteWriter& out);
Status decode(ByteView bytes, MetricsMessage* message);

}  // namespace hvd::runtime
