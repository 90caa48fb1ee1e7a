// Messages of the timeline and the metrics between runtimes, and recorded events of ranks: any
// bytes. A message that decodes must survive encoding and decoding. Formatted text must be JSON
// that nests.
#include <cstdlib>
#include <cstring>

#include "fuzz/target.h"
#include "runtime/telemetry/metrics_service.h"
#include "runtime/telemetry/timeline.h"
#include "runtime/telemetry/trace_format.h"

namespace {

using namespace hvd::runtime;

template <typename T>
bool round_trip(hvd::ByteView message, T* first) {
  if (!decode(message, first).ok()) return false;
  hvd::ByteWriter out;
  encode(*first, out);
  T second;
  if (!decode(out.view(), &second).ok()) std::abort();
  hvd::ByteWriter again;
  encode(second, again);
  if (hvd::as_text(out.view()) != hvd::as_text(again.view())) std::abort();
  return true;
}

// Begun and ended events, and the size of the file.
void format(const std::vector<TraceSlot>& slots, int64_t offset) {
  long depth = 0;
  TraceFormat trace(3, 0, 0, [&](std::string_view value) {
    if (value.size() > 4088 || !value.starts_with('{') || !value.ends_with('}')) std::abort();
    if (value.starts_with("{\"ph\": \"B\"")) ++depth;
    if (value.starts_with("{\"ph\": \"E\"") && --depth < 0) std::abort();
  });
  trace.add({1, offset, 0, 0, "host", slots});
  trace.finish();
  if (depth != 0) std::abort();
}

}  // namespace

HVD_FUZZ_TARGET(timeline_message) {
  TimelineMessage timeline;
  if (round_trip(bytes, &timeline)) format(timeline.slots, timeline.offset);
  MetricsMessage metrics;
  if (round_trip(bytes, &metrics)) (void)metrics_text(metrics.values);
  TraceName name;
  (void)decode(bytes, &name);
  std::vector<TraceSlot> slots(size / sizeof(TraceSlot));
  if (slots.empty()) return;
  std::memcpy(static_cast<void*>(slots.data()), data, slots.size() * sizeof(TraceSlot));
  format(slots, 0);
}
