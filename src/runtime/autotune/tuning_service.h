// Tunes the parameters of a running job. The root measures training steps, chooses parameters, and sends the
// parameters to all ranks before the first plan that uses them. Other ranks apply the root's parameters. Runtime owns
// TuningService; the runtime core calls it as a service, with the progress lock held.
#pragma once

#include <fstream>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "runtime/autotune/autotuner.h"
#include "runtime/core/runtime_core.h"
#include "runtime/settings/worker_settings.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

struct StepMeterOptions {
  int warmups = 3;  // samples that are discarded at the start
  int steps_per_sample = 10;
  int samples = 5;  // samples whose median is the score
};

// Computes the score of training steps from plans, in bytes per microsecond. A step begins at each occurrence of the
// mark, the first name that has occurred twice. TuningService owns the StepMeter; only the root uses it. Pure.
class StepMeter {
 public:
  explicit StepMeter(const StepMeterOptions& options) : options_(options) {}

  // Call this before making a plan of these items. `bytes`: their total size. Returns a score if a step that begins in
  // this plan ends the last sample. This step is not measured, since it begins before the new parameters apply.
  std::optional<double> add(const std::vector<PlanItem>& items, uint64_t bytes,
                            Clock::time_point now);
  // Records the cache id that a plan gave to the mark.
  void learn(const std::vector<PlanItem>& items);

 private:
  bool step_begins(const std::vector<PlanItem>& items);

  const StepMeterOptions options_;
  std::string mark_;                      // the name that marks a step; empty if not found yet
  uint32_t mark_id_ = 0;                  // the mark's id in the cache
  std::unordered_set<std::string> seen_;  // names that occurred before a mark is found
  size_t items_since_mark_ = 0;
  bool measures_ = false;
  Clock::time_point since_{};
  uint64_t bytes_ = 0;
  int steps_ = 0;
  int warmed_up_ = 0;
  std::vector<double> scores_;
};

struct TuningOptions {
  StepMeterOptions meter;
  AutotunerOptions tuner;
  std::string log_path;  // empty: no log
  bool cache_enabled = true;
  bool reproducible = false;
};

// Returns the options of autotuning from the settings; nullopt if autotuning is off. `hosts`: number of
// hosts of the job. `most_ranks`: maximum number of ranks on a host.
std::optional<TuningOptions> tuning_options(const WorkerSettings& settings, int32_t hosts,
                                            int32_t most_ranks);
// Returns the initial parameters of the runtime core, from the settings.
TunedParameters parameters_of(const WorkerSettings& settings);
// `reproducible`: use only algorithms that add the values of every element in the same order of hosts.
hvd_tuning tuning_of(const TunedParameters& parameters, bool reproducible);
std::chrono::microseconds window_of(const TunedParameters& parameters);

class TuningService final : public Service, public PlanListener {
 public:
  TuningService(RuntimeCore* core, const TuningOptions& options);

  void receive(int32_t from, ByteView message) override;
  void planning(const std::vector<PlanItem>& items, uint64_t bytes) override;
  void planned(const std::vector<PlanItem>& items) override;

 private:
  void open_log();
  void log(const Autotuner::Sample& sample);
  void send_to_all();

  RuntimeCore* const core_;
  const TuningOptions options_;
  // Only the root uses these three members.
  StepMeter meter_;
  Autotuner tuner_;
  std::ofstream log_;
};

}  // namespace hvd::runtime
