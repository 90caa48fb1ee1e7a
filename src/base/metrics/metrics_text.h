// Formats metrics as text in Prometheus's format, version 0.0.4. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/metrics/metrics.h"

namespace hvd {

// `labels` is text like rank="0",host="a"; may be empty.
struct LabelledMetrics {
  std::string labels;
  const Metrics* metrics;
};
std::string metrics_text(std::span<const LabelledMetrics> all);
// Converts text of Prometheus's format to the OpenMetrics format, version 1.0.0.
std::string open_metrics_text(std::string_view text);
// Returns the means over the last training steps; before the end of the first step, only comment lines.
std::string step_text(std::string_view labels, const StepLog& log);

// Parts of a text in Prometheus's format. `name` is without "horovod_".
void put_family(std::string& text, std::string_view name, std::string_view type,
                std::string_view help);
void put_sample(std::string& text, std::string_view name, std::string_view labels,
                std::string_view value);
// Escapes the value of a label; adds no quotes.
std::string escape_label(std::string_view text);
// Formats a number with at most 15 digits.
std::string number_text(double value);

}  // namespace hvd
