// The metrics and the trace recorder, to which the runtime core and the executor report events.
// RuntimeCore owns the recorder; the metrics outlive it. Used with the progress lock held.
#pragma once

#include "base/metrics/metrics.h"
#include "runtime/telemetry/trace_recorder.h"

namespace hvd::runtime {

struct Instruments {
  explicit Instruments(Metrics* metrics) : metrics(metrics) {}
  TraceRecorder trace;
  Metrics* const metrics;
};

}  // namespace hvd::runtime
