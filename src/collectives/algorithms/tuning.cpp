#include "collectives/algorithms/tuning.h"

#include <algorithm>

#include "base/record_field.h"

namespace hvd::collectives {
namespace {

// Sets a limit: 0 keeps the default, and a negative value sets `never`, which is never reached.
void take(size_t& limit, int64_t value, size_t never) {
  if (value != 0) limit = value < 0 ? never : static_cast<size_t>(value);
}

}  // namespace

Tuning tuning_of(const hvd_batch& batch) {
  Tuning tuning;
  const hvd_tuning* const given = field_of(batch, &hvd_batch::tuning);
  if (given == nullptr || given->struct_size < sizeof(hvd_tuning)) return tuning;
  const hvd_tuning& own = *given;
  take(tuning.one_shot_limit, own.whole_limit, 0);
  take(tuning.one_shot_limit_of_two, own.whole_limit, 0);
  take(tuning.recursive_doubling_limit, own.doubling_limit, 0);
  take(tuning.ring_from, own.ring_from, std::numeric_limits<size_t>::max());
  if (own.chunk > 0) {
    tuning.chunk = tuning.one_shot_chunk = std::max<size_t>(static_cast<size_t>(own.chunk), 4096);
  }
  if (own.direct_hosts != 0) tuning.two_shot_hosts = own.direct_hosts;
  if (own.streams > 0) tuning.streams = std::min(own.streams, kMostStreams);
  if (own.drivers > 0) tuning.drivers = own.drivers;
  return tuning;
}

}  // namespace hvd::collectives
