// Formats the metrics of ranks as text in Prometheus's format, version 0.0.4. Pure.
#pragma once

#include <span>
#include <string>

#include "runtime/telemetry/metrics_message.h"

namespace hvd::runtime {

// Ranks in ascending order.
std::string metrics_text(std::span<const MetricsOfRank> ranks);

}  // namespace hvd::runtime
