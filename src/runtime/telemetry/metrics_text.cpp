#include "runtime/telemetry/metrics_text.h"

#include <array>
#include <charconv>
#include <string_view>

#include "base/operations/op_traits.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

using Ranks = std::span<const MetricsOfRank>;

struct CounterText {
  Counter counter;
  std::string_view name;
  std::string_view help;
};
constexpr std::array<CounterText, kCounters> kCounterTexts = {{
    {Counter::kSteps, "steps", "Passes of the runtime core over what can move."},
    {Counter::kWakeups, "wakeups", "Times that a thread of the runtime slept and was woken."},
    {Counter::kBatches, "batches", "Batches that were run."},
    {Counter::kBatchTensors, "batch_tensors", "Tensors in batches that were run."},
    {Counter::kFusedTensors, "fused_tensors", "Tensors in batches of more than one."},
    {Counter::kMessages, "messages", "Messages sent to other ranks, beside tensors."},
    {Counter::kCacheHits, "cache_hits", "Submissions that were agreed on by a cached id."},
    {Counter::kCacheMisses, "cache_misses", "Submissions that were agreed on in full."},
    {Counter::kStalls, "stalls", "Warnings of work that waits for ranks that do not come."},
}};

std::string escape_label(std::string_view text) {
  std::string escaped;
  for (const char c : printable(text, 256)) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string number(double value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

std::string labels_of(const MetricsOfRank& rank, std::string_view op = {}) {
  std::string labels = cat("rank=\"", rank.rank, "\",host=\"", escape_label(rank.host), "\"");
  if (!op.empty()) labels += cat(",operation=\"", op, "\"");
  return labels;
}

void family(std::string& text, std::string_view name, std::string_view type,
            std::string_view help) {
  text += cat("# HELP horovod_", name, ' ', help, "\n# TYPE horovod_", name, ' ', type, '\n');
}

void sample(std::string& text, std::string_view name, std::string_view labels,
            std::string_view value) {
  text += cat("horovod_", name, '{', labels, "} ", value, '\n');
}

// A histogram as it is shown: the first `bounds` of it, in units of `scale`.
struct HistogramText {
  std::string_view name;
  size_t bounds;
  double scale;
};

void histogram(std::string& text, const HistogramText& as, const std::string& labels,
               const Histogram& of) {
  uint64_t below = 0;
  for (size_t i = 0; i < as.bounds; ++i) {
    below += of.counts[i];
    const std::string bound = number(static_cast<double>(Histogram::bound(i)) * as.scale);
    sample(text, cat(as.name, "_bucket"), cat(labels, ",le=\"", bound, "\""), cat(below));
  }
  uint64_t count = 0;
  for (const uint64_t bucket : of.counts) count += bucket;
  sample(text, cat(as.name, "_bucket"), cat(labels, ",le=\"+Inf\""), cat(count));
  sample(text, cat(as.name, "_sum"), labels, number(static_cast<double>(of.sum) * as.scale));
  sample(text, cat(as.name, "_count"), labels, cat(count));
}

void by_operation(std::string& text, Ranks ranks, std::string_view name, std::string_view help,
                  const std::array<uint64_t, kOpCount> Metrics::*values) {
  family(text, name, "counter", help);
  for (const MetricsOfRank& rank : ranks) {
    for (size_t op = 0; op < kOpCount; ++op) {
      if (kOpTraits[op].name.empty()) continue;
      sample(text, name, labels_of(rank, kOpTraits[op].name), cat((rank.metrics.*values)[op]));
    }
  }
}

void latencies(std::string& text, Ranks ranks) {
  constexpr HistogramText kAs{"operation_seconds", 27, 1e-6};
  family(text, kAs.name, "histogram",
         "From when the runtime took an operation up to its end, where there was any.");
  for (const MetricsOfRank& rank : ranks) {
    for (size_t op = 0; op < kOpCount; ++op) {
      if (rank.metrics.done[op] + rank.metrics.failed[op] == 0) continue;
      histogram(text, kAs, labels_of(rank, kOpTraits[op].name), rank.metrics.latency[op]);
    }
  }
}

void one_histogram(std::string& text, Ranks ranks, const HistogramText& as, std::string_view help,
                   const Histogram Metrics::*values) {
  family(text, as.name, "histogram", help);
  for (const MetricsOfRank& rank : ranks) {
    histogram(text, as, labels_of(rank), rank.metrics.*values);
  }
}

}  // namespace

std::string metrics_text(Ranks ranks) {
  std::string text;
  by_operation(text, ranks, "operations_total", "Operations that were completed.", &Metrics::done);
  by_operation(text, ranks, "failed_operations_total", "Operations that failed.", &Metrics::failed);
  by_operation(text, ranks, "bytes_total", "Bytes that this rank brought to completed operations.",
               &Metrics::bytes);
  for (const CounterText& counter : kCounterTexts) {
    const std::string name = cat(counter.name, "_total");
    family(text, name, "counter", counter.help);
    for (const MetricsOfRank& rank : ranks) {
      sample(text, name, labels_of(rank),
             cat(rank.metrics.counters[static_cast<size_t>(counter.counter)]));
    }
  }
  family(text, "pending_operations", "gauge", "Operations that are not complete.");
  for (const MetricsOfRank& rank : ranks) {
    sample(text, "pending_operations", labels_of(rank), cat(rank.pending));
  }
  latencies(text, ranks);
  one_histogram(text, ranks, {"negotiation_seconds", 27, 1e-6},
                "From when the runtime took an operation up until all ranks had agreed on it.",
                &Metrics::negotiation);
  one_histogram(text, ranks, {"batch_bytes", 32, 1}, "Bytes in a batch.", &Metrics::batch_bytes);
  one_histogram(text, ranks, {"batch_fill_ratio", 11, 1e-3},
                "Bytes in a batch as a part of the fusion threshold.", &Metrics::batch_fill);
  return text;
}

}  // namespace hvd::runtime
