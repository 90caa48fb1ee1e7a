// The metrics and the trace recorder, to which the runtime core and the executor report events.
// RuntimeCore owns them. Used with the progress lock held.
#pragma once

#include "runtime/telemetry/metrics.h"
#include "runtime/telemetry/trace_recorder.h"

namespace hvd::runtime {

struct Instruments {
  TraceRecorder trace;
  Metrics metrics;
};

}  // namespace hvd::runtime
