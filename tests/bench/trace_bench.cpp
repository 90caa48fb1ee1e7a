// Measures the cost of a timeline: nanoseconds per event that a rank records, with a timeline and
// without, and per event that the root's thread writes. Also measures the cost of the metrics.
//
//   build/bench/trace_bench
#include <cstdio>
#include <deque>
#include <filesystem>
#include <string>

#include "base/metrics/metrics.h"
#include "runtime/negotiation/response_cache.h"
#include "runtime/submission/tensor_table.h"
#include "runtime/telemetry/trace_file.h"
#include "runtime/telemetry/trace_format.h"
#include "runtime/telemetry/trace_recorder.h"

namespace {

using namespace hvd;
using namespace hvd::runtime;

constexpr int kNames = 100;
constexpr int kSteps = 20'000;

double nanoseconds_since(Clock::time_point start, double events) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / events;
}

struct Step {
  std::deque<Name> names;
  std::deque<Submission> submissions;
  std::deque<CacheEntry> entries;
  std::vector<Submission*> batch;
  Step() {
    for (int i = 0; i < kNames; ++i) {
      Name& name = names.emplace_back(0, "allreduce.layer" + std::to_string(i));
      Submission& submission = submissions.emplace_back();
      submission.name = &name;
      submission.request.tensors = {{HVD_FLOAT32, {64, 64}}};
      CacheEntry& entry = entries.emplace_back();
      entry.request = submission.request;
      name.cached = &entry;  // a cache hit, as in repeated work
      batch.push_back(&submission);
    }
  }
  // Records the events of one fused batch of all names, and returns the number of events.
  double run(TraceRecorder* recorder) {
    for (Submission* submission : batch) recorder->negotiate(*submission);
    for (Submission* submission : batch) recorder->decide(*submission, true);
    const uint32_t number = recorder->start_batch(HVD_ALLREDUCE, HVD_FLOAT32, batch);
    recorder->activity(number, "SHM_ALLREDUCE");
    recorder->end_batch(number);
    return 3 * kNames + 3;
  }
};

void noted(bool on) {
  Step step;
  TraceRecorder recorder;
  std::vector<TraceSlot> taken;
  if (on) recorder.start(false);
  double notes = 0;
  const auto start = Clock::now();
  for (int i = 0; i < kSteps; ++i) {
    notes += step.run(&recorder);
    if (recorder.is_filling()) recorder.take(&taken);
  }
  std::printf("a note %s a timeline: %.1f ns (%llu lost)\n", on ? "with" : "without",
              nanoseconds_since(start, notes), static_cast<unsigned long long>(recorder.dropped()));
}

void written() {
  const std::string path = std::filesystem::temp_directory_path() / "hvd-trace-bench.json";
  auto file = TraceFile::create(path);
  if (!file.ok()) return;
  Step step;
  TraceRecorder recorder;
  recorder.start(false);
  TraceBatch batch;
  double events = 0;
  TraceFormat format(1, Clock::now().time_since_epoch().count(), 0, [&](std::string_view value) {
    file->append(value);
    ++events;
  });
  const auto start = Clock::now();
  for (int i = 0; i < kSteps / 20; ++i) {
    step.run(&recorder);
    recorder.take(&batch.slots);
    format.add(batch);
    (void)file->flush();
  }
  const double each = nanoseconds_since(start, events);
  std::printf("an event in the file: %.0f ns, %.0f bytes\n", each,
              static_cast<double>(std::filesystem::file_size(path)) / events);
  std::filesystem::remove(path);
}

void counted() {
  Metrics metrics;
  const auto start = Clock::now();
  constexpr int kOperations = 10'000'000;
  for (int i = 0; i < kOperations; ++i) {
    metrics.agreed(std::chrono::nanoseconds(i));
    metrics.count(Counter::kCacheHits);
    metrics.finished(HVD_ALLREDUCE, true, 4096, std::chrono::nanoseconds(i));
    asm volatile("" : : "g"(&metrics) : "memory");
  }
  std::printf("an operation's metrics: %.1f ns\n", nanoseconds_since(start, kOperations));
}

}  // namespace

int main() {
  noted(false);
  noted(true);
  written();
  counted();
}
