// Instruments of the runtime core and the executor: they report events to metrics and timeline.
// Belongs to the thread that holds the progress lock.
#pragma once

#include "runtime/telemetry/metrics.h"
#include "runtime/telemetry/trace_recorder.h"

namespace hvd::runtime {

struct Instruments {
  TraceRecorder trace;
  Metrics metrics;
};

}  // namespace hvd::runtime
