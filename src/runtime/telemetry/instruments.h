// The counters and the trace recorder, to which the runtime core and the executor report events.
// RuntimeCore owns the recorder; the counters outlive it. Callers hold the progress lock.
#pragma once

#include "base/metrics/rank_counters.h"
#include "runtime/telemetry/trace_recorder.h"

namespace hvd::runtime {

struct Instruments {
  explicit Instruments(RankCounters* counters)
      : metrics(&counters->metrics),
        steps(&counters->steps),
        names(&counters->names),
        announced(&counters->announced) {}
  TraceRecorder trace;
  Metrics* const metrics;
  StepLog* const steps;
  OperationNames* const names;
  Announcements* const announced;
};

}  // namespace hvd::runtime
