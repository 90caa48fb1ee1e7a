// The observation functions of a rank: timeline and metrics. Runtime owns the Observation; the C ABI calls
// it on any thread. A call may wait for the helper threads of other ranks, but never for their programs.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "horovod/horovod.h"
#include "runtime/bootstrap/identity.h"
#include "runtime/core/runtime_core.h"
#include "runtime/settings/worker_settings.h"
#include "runtime/telemetry/metrics_service.h"
#include "runtime/telemetry/timeline.h"

namespace hvd::runtime {

class Observation {
 public:
  // `core`, `host` and `progress` must outlive this object. The caller must not hold the progress lock.
  Observation(const Identity& identity, const WorkerSettings& settings, bool on_roots_machine,
              RuntimeCore* core, PluginHost* host, Progress* progress);

  // Starts the timeline that the settings name. Call it after all ranks have connected. A failure logs a warning; the
  // job continues.
  void begin();
  Status start_timeline(const std::string& path, bool mark_cycles);
  Status stop_timeline();
  Result<std::string> metrics(hvd_metrics_scope scope);
  // Stops the job's timeline, if it runs, while the links can still carry the events of all ranks.
  void before_leave();
  // Waits until the timeline's file is complete. The caller holds the progress lock; the runtime core must have ended.
  void close() { timeline_.close(); }

 private:
  using Asking = std::function<void(const std::shared_ptr<Question>&)>;
  // Calls `asking`, and waits for the reply up to `seconds`. `of_all`: the reply needs other ranks.
  Result<std::string> ask(bool of_all, Asking asking, double seconds);
  MetricsOfRank own_metrics() const HVD_REQUIRES(progress_->progress_lock());
  ServiceLinks links(ServiceId id);

  const Identity identity_;
  const std::string host_name_;
  const std::string wanted_path_;
  const bool wanted_marks_;
  RuntimeCore* const core_;
  PluginHost* const host_;
  Progress* const progress_;
  Timeline timeline_;
  MetricsService metrics_;
};

}  // namespace hvd::runtime
