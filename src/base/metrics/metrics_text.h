// Formats metrics as text in Prometheus's format, version 0.0.4. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/metrics/rank_counters.h"

namespace hvd {

// `labels`: as rank="0",host="a"; may be empty.
struct LabelledMetrics {
  std::string labels;
  const Metrics* metrics;
};
std::string metrics_text(std::span<const LabelledMetrics> all);
// The same text in OpenMetrics' format, version 1.0.0.
std::string open_metrics_text(std::string_view text);
// The means over the last training steps; only comments before the first.
std::string step_text(std::string_view labels, const StepLog& log);

// The parts of such a text. Names are without "horovod_".
void put_family(std::string& text, std::string_view name, std::string_view type,
                std::string_view help);
void put_sample(std::string& text, std::string_view name, std::string_view labels,
                std::string_view value);
// The value of a label, without its quotes.
std::string escape_label(std::string_view text);
// The shortest digits that mean this number.
std::string number_text(double value);

}  // namespace hvd
