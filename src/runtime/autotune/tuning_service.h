// Tunes the parameters of a running job. The root scores the plans, tries parameters, and sends the parameters
// to all ranks before the first plan that uses them. The root stops when the search ends. Other ranks apply
// the root's parameters. Runtime owns TuningService; the runtime core calls it as a service, with
// the progress lock held.
#pragma once

#include <fstream>
#include <optional>

#include "runtime/autotune/autotuner.h"
#include "runtime/autotune/step_meter.h"
#include "runtime/core/runtime_core.h"
#include "runtime/settings/worker_settings.h"

namespace hvd::runtime {

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
// `reproducible`: use only algorithms that add in the order of the hosts, for any batch and any element.
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
