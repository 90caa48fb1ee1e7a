// Messages between ranks when one asks for the metrics of all, as bytes. Decoding trusts nothing.
//
//   up    ask      a rank wants them
//         values   what a rank has counted
//   down  collect  all send theirs
//         result   everybody's, and who had asked
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "runtime/telemetry/metrics.h"
#include "runtime/telemetry/question.h"

namespace hvd::runtime {

// One rank's.
struct MetricsOfRank {
  int32_t rank = 0;
  std::string host;
  uint64_t pending = 0;  // submissions that are not complete
  Metrics metrics;
};

enum class MetricsSays : uint8_t { kAsk = 1, kValues = 2, kCollect = 3, kResult = 4 };

struct MetricsMessage {
  MetricsSays says = MetricsSays::kAsk;
  uint32_t number = 0;  // ask: the asker's ticket; else of the collection
  std::vector<Ask> asks;
  std::vector<MetricsOfRank> values;
};

void encode(const MetricsMessage& message, ByteWriter& out);
Status decode(ByteView bytes, MetricsMessage* message);

}  // namespace hvd::runtime
