#include "base/metrics/metrics_text.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/operations/op_traits.h"
#include "base/text.h"

namespace hvd {
namespace {

using All = std::span<const LabelledMetrics>;

struct CounterText {
  Counter counter;
  std::string_view name;
  std::string_view help;
};
constexpr std::array<CounterText, kCounters> kCounterTexts = {{
    {Counter::kSteps, "steps",
     "Training steps: times that the names of tensors came again, and backward passes of DDP."},
    {Counter::kPasses, "passes", "Passes of the runtime over what can move."},
    {Counter::kWakeups, "wakeups", "Times that a thread of the runtime slept and was woken."},
    {Counter::kBatches, "batches", "Batches that were run."},
    {Counter::kBatchTensors, "batch_tensors", "Tensors in batches that were run."},
    {Counter::kFusedTensors, "fused_tensors", "Tensors in batches of more than one."},
    {Counter::kMessages, "messages", "Messages sent to other ranks, without tensors."},
    {Counter::kCacheHits, "cache_hits", "Submissions that were agreed on by a cached id."},
    {Counter::kCacheMisses, "cache_misses", "Submissions that were agreed on in full."},
    {Counter::kStalls, "stalls", "Warnings of work that waits for ranks that do not come."},
}};

std::string labels_of(const LabelledMetrics& one, std::string_view op) {
  return cat(one.labels, one.labels.empty() ? "" : ",", "operation=\"", op, "\"");
}

// The output of a histogram: its first `bounds` buckets, with all values multiplied by `scale`.
struct HistogramText {
  std::string_view name;
  size_t bounds;
  double scale;
};

void histogram(std::string& text, const HistogramText& as, const std::string& labels,
               const Histogram& of) {
  const std::string before = cat(labels, labels.empty() ? "" : ",");
  uint64_t below = 0;
  for (size_t i = 0; i < as.bounds; ++i) {
    below += of.counts[i];
    const std::string bound = number_text(static_cast<double>(Histogram::bound(i)) * as.scale);
    put_sample(text, cat(as.name, "_bucket"), cat(before, "le=\"", bound, "\""), cat(below));
  }
  uint64_t count = 0;
  for (const uint64_t bucket : of.counts) count += bucket;
  put_sample(text, cat(as.name, "_bucket"), cat(before, "le=\"+Inf\""), cat(count));
  put_sample(text, cat(as.name, "_sum"), labels,
             number_text(static_cast<double>(of.sum) * as.scale));
  put_sample(text, cat(as.name, "_count"), labels, cat(count));
}

void by_operation(std::string& text, All all, std::string_view name, std::string_view help,
                  const std::array<uint64_t, kOpCount> Metrics::*values) {
  put_family(text, name, "counter", help);
  for (const LabelledMetrics& one : all) {
    for (size_t op = 0; op < kOpCount; ++op) {
      if (kOpTraits[op].name.empty()) continue;
      put_sample(text, name, labels_of(one, kOpTraits[op].name), cat((one.metrics->*values)[op]));
    }
  }
}

void latencies(std::string& text, All all) {
  constexpr HistogramText kAs{"operation_seconds", 27, 1e-6};
  put_family(text, kAs.name, "histogram",
             "From when the runtime took an operation up to its end, where there was any.");
  for (const LabelledMetrics& one : all) {
    for (size_t op = 0; op < kOpCount; ++op) {
      if (one.metrics->done[op] + one.metrics->failed[op] == 0) continue;
      histogram(text, kAs, labels_of(one, kOpTraits[op].name), one.metrics->latency[op]);
    }
  }
}

void one_histogram(std::string& text, All all, const HistogramText& as, std::string_view help,
                   const Histogram Metrics::*values) {
  put_family(text, as.name, "histogram", help);
  for (const LabelledMetrics& one : all) {
    histogram(text, as, one.labels, one.metrics->*values);
  }
}

}  // namespace

std::string escape_label(std::string_view text) {
  std::string escaped;
  for (const char c : printable(text, 256)) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string number_text(double value) {
  std::array<char, 32> digits;
  // Sums of binary fractions differ from decimal sums after this many digits.
  constexpr int kDigits = 15;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 std::chars_format::general, kDigits)
                       .ptr;
  return {digits.data(), end};
}

void put_family(std::string& text, std::string_view name, std::string_view type,
                std::string_view help) {
  text += cat("# HELP horovod_", name, ' ', help, "\n# TYPE horovod_", name, ' ', type, '\n');
}

void put_sample(std::string& text, std::string_view name, std::string_view labels,
                std::string_view value) {
  text += cat("horovod_", name, labels.empty() ? "" : "{", labels, labels.empty() ? " " : "} ",
              value, '\n');
}

std::string open_metrics_text(std::string_view text) {
  constexpr std::string_view kTotal = "_total", kHelp = "# HELP ", kType = "# TYPE ";
  std::string open;
  open.reserve(text.size() + 8);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    // OpenMetrics names a counter's family without the suffix _total.
    const bool is_about = line.starts_with(kHelp) || line.starts_with(kType);
    const size_t name_end = is_about ? line.find(' ', kHelp.size()) : std::string_view::npos;
    if (is_about && line.substr(0, name_end).ends_with(kTotal))
      open.append(line.substr(0, name_end - kTotal.size())).append(line.substr(name_end));
    else
      open.append(line);
  }
  return open.append("# EOF\n");
}

std::string step_text(std::string_view labels, const StepLog& log) {
  std::string text;
  const auto put = [&](std::string_view name, std::string_view help, std::optional<double> value) {
    put_family(text, name, "gauge", help);
    if (value) put_sample(text, name, labels, number_text(*value));
  };
  const auto means = means_of(log);
  const auto value_of = [&](double StepMeans::*value) {
    return means ? std::optional(*means.*value) : std::nullopt;
  };
  put("step_seconds", "Time of a training step.", value_of(&StepMeans::seconds));
  put("step_waited_ratio", "Part of that time until all ranks had agreed.",
      value_of(&StepMeans::waited_share));
  put("step_bytes", "Input bytes of completed operations in a training step.",
      value_of(&StepMeans::bytes));
  put("step_late_seconds", "How long the other ranks wait for this one in a training step.",
      means ? means->late_seconds : std::nullopt);
  return text;
}

std::string metrics_text(All all) {
  std::string text;
  by_operation(text, all, "operations_total", "Operations that were completed.", &Metrics::done);
  by_operation(text, all, "failed_operations_total", "Operations that failed.", &Metrics::failed);
  by_operation(text, all, "bytes_total", "Input bytes of completed operations.", &Metrics::bytes);
  for (const CounterText& counter : kCounterTexts) {
    const std::string name = cat(counter.name, "_total");
    put_family(text, name, "counter", counter.help);
    for (const LabelledMetrics& one : all) {
      put_sample(text, name, one.labels,
                 cat(one.metrics->counters[static_cast<size_t>(counter.counter)]));
    }
  }
  put_family(text, "pending_operations", "gauge", "Operations that are not complete.");
  for (const LabelledMetrics& one : all) {
    put_sample(text, "pending_operations", one.labels, cat(one.metrics->pending));
  }
  latencies(text, all);
  one_histogram(text, all, {"negotiation_seconds", 27, 1e-6},
                "From when the runtime took an operation up until all ranks had agreed on it.",
                &Metrics::negotiation);
  one_histogram(text, all, {"batch_bytes", 32, 1}, "Bytes in a batch.", &Metrics::batch_bytes);
  one_histogram(text, all, {"batch_fill_ratio", 11, 1e-3},
                "Bytes in a batch as a part of the fusion threshold.", &Metrics::batch_fill);
  return text;
}

}  // namespace hvd
