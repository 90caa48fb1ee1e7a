// Batches, algorithms and results of threads for the tests of collectives; world.h has their world.
#pragma once

#include <doctest/doctest.h>

#include "collectives/world.h"

namespace hvd::test {

inline hvd_batch batch_of(int op, hvd_dtype dtype, std::vector<hvd_batch_tensor>& tensors) {
  hvd_batch batch{};
  batch.struct_size = sizeof batch;
  batch.op = op;
  batch.reduce_op = HVD_SUM;
  batch.dtype = dtype;
  batch.device = HVD_CPU;
  batch.prescale = batch.postscale = 1;
  batch.tensor_count = static_cast<uint32_t>(tensors.size());
  batch.tensors = tensors.data();
  return batch;
}

struct NamedTuning {
  const char* name;
  hvd_tuning tuning;
};

inline hvd_tuning tuning_with(int64_t whole, int64_t doubling, int64_t ring_from,
                              int32_t direct_hosts) {
  hvd_tuning tuning{};
  tuning.struct_size = sizeof tuning;
  tuning.whole_limit = whole;
  tuning.doubling_limit = doubling;
  tuning.ring_from = ring_from;
  tuning.direct_hosts = direct_hosts;
  tuning.chunk = 4096;
  return tuning;
}

// Every algorithm between hosts, whatever the size.
inline std::vector<NamedTuning> all_algorithms() {
  constexpr int64_t kAlways = int64_t{1} << 40;
  return {{"one-shot", tuning_with(kAlways, -1, -1, 1000)},
          {"recursive doubling", tuning_with(-1, kAlways, -1, 1)},
          {"two-shot", tuning_with(-1, -1, -1, 1000)},
          {"halving-doubling", tuning_with(-1, -1, -1, 1)},
          {"ring", tuning_with(-1, -1, 1, 1)}};
}

inline Status pass_barrier(Rank& rank) {
  hvd_batch batch{};
  batch.op = HVD_BARRIER;
  batch.device = HVD_CPU;
  return rank.run(batch);
}

inline Status as_status(const std::string& complaint) {
  return complaint.empty() ? Status() : internal_error(complaint);
}

inline void require_all_ok(const std::vector<Status>& outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    INFO("rank ", rank);
    CHECK(outcomes[rank].message() == "");
  }
}

}  // namespace hvd::test
