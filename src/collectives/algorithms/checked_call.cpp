#include "collectives/algorithms/checked_call.h"

#include <tuple>

#include "collectives/algorithms/small_allreduce.h"

namespace hvd::collectives {
namespace {

constexpr size_t kFields = std::tuple_size_v<CallRecord>;

// An allgather of as many numbers of 64 bits from each member.
class NumberGather {
 public:
  NumberGather(const Group& group, const void* own, void* all, size_t count,
               const hvd_tuning* tuning)
      : rows_(group.size(), 1), tensor_{own,
                                        all,
                                        static_cast<int64_t>(count),
                                        static_cast<int64_t>(count),
                                        rows_.data(),
                                        nullptr} {
    batch_.struct_size = sizeof batch_;
    batch_.tuning = tuning;
    batch_.op = HVD_ALLGATHER;
    batch_.reduce_op = HVD_SUM;
    batch_.dtype = HVD_INT64;
    batch_.device = HVD_CPU;
    batch_.prescale = batch_.postscale = 1;
    batch_.tensor_count = 1;
    batch_.tensors = &tensor_;
  }
  NumberGather(const NumberGather&) = delete;
  const hvd_batch& batch() const { return batch_; }

 private:
  const std::vector<int64_t> rows_;
  const hvd_batch_tensor tensor_;
  hvd_batch batch_{};
};

}  // namespace

std::optional<std::pair<size_t, size_t>> differing_pair(std::span<const int64_t> all_counts,
                                                        size_t members) {
  for (size_t from = 0; from < members; ++from) {
    for (size_t to = 0; to < members; ++to) {
      const int64_t sent = all_counts[from * 2 * members + to];
      const int64_t expected = all_counts[to * 2 * members + members + from];
      if (sent != expected) return std::pair(from, to);
    }
  }
  return std::nullopt;
}

// One small allreduce has the least and, as complements, the largest value of each field. It takes the steps of
// the group and the streams between its hosts, as the data do that follow.
Coroutine run_checked(Flow& flow, Group& group, const hvd_batch& batch, CheckedCall& call) {
  SubRegionOpen open(group);
  co_await flow.until(open);
  std::array<uint64_t, 2 * kFields> least;
  for (size_t i = 0; i < kFields; ++i) {
    least[i] = call.record[i];
    least[kFields + i] = ~call.record[i];
  }
  SmallAllreduce compare(HVD_MIN, HVD_UINT64, least.data(), least.size(), batch.tuning);
  co_await allreduce(flow, group, compare.batch());
  call.is_same = true;
  for (size_t i = 0; i < kFields; ++i) call.is_same &= least[i] == ~least[kFields + i];
  if (!call.is_same) {
    call.records.resize(group.size());
    NumberGather records(group, call.record.data(), call.records.data(), kFields, batch.tuning);
    co_await allgather(flow, group, records.batch());
    co_return;
  }
  if (batch.op == HVD_ALLTOALL) {
    call.all_counts.resize(group.size() * call.counts.size());
    NumberGather counts(group, call.counts.data(), call.all_counts.data(), call.counts.size(),
                        batch.tuning);
    co_await allgather(flow, group, counts.batch());
    call.is_same = !differing_pair(call.all_counts, group.size());
    if (!call.is_same) co_return;
  }
  if (batch.op != HVD_BARRIER) co_await run(flow, group, batch);
}

}  // namespace hvd::collectives
