// What the engine and the executor tell of what they do. Belongs to the thread that holds the
// baton.
#pragma once

#include "runtime/metrics.h"
#include "runtime/trace_recorder.h"

namespace hvd::runtime {

struct Instruments {
  TraceRecorder trace;
  Metrics metrics;
};

}  // namespace hvd::runtime
