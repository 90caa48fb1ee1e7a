#include "collectives/algorithms/checked_call.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/dtype.h"
#include "collectives/algorithms/allreduce_local.h"
#include "collectives/algorithms/flow.h"
#include "collectives/algorithms/group.h"
#include "collectives/kernels/reduction.h"
#include "horovod/plugin_op.h"

namespace hvd::collectives {
namespace {

// Minimum size in bytes of an allgather or reduce-scatter that reads other ranks' inputs in place (SharedHeap): below
// it, packing takes less time than mapping other ranks' memory and waiting.
constexpr size_t kLeastShared = 32 * 1024;

// Sizes in bytes. `part` is one member's part of an output or of an input.
struct Sizes {
  size_t input, output, part;
};

Sizes sizes_of(const Group& group, const hvd_batch& batch) {
  const size_t input =
      static_cast<size_t>(batch.tensors[0].count) * size_of(static_cast<hvd_dtype>(batch.dtype));
  if (batch.op == HVD_ALLGATHER) return {input, group.size() * input, input};
  return {input, input / group.size(), input / group.size()};
}

// The inputs of all members, by local index.
using Inputs = std::vector<const void*>;

Result<Inputs> reach(Group& group, const hvd_batch& batch,
                     std::span<const SharedHeap::Place> places) {
  const Sizes sizes = sizes_of(group, batch);
  Inputs inputs;
  for (size_t i = 0; i < group.local_count(); ++i) {
    if (i == group.local_index()) {
      inputs.push_back(batch.tensors[0].input);
      continue;
    }
    const size_t on_host = group.mesh().local_index_of(group.global_rank_of_local(i));
    HVD_ASSIGN_OR_RETURN(const std::byte* const theirs,
                         group.mesh().peer_heaps()->reach(on_host, places[i], sizes.input));
    inputs.push_back(theirs);
  }
  return inputs;
}

void gather(const Group& group, const hvd_batch& batch, const Inputs& inputs) {
  const size_t part = sizes_of(group, batch).part;
  auto* const output = static_cast<std::byte*>(batch.tensors[0].output);
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::byte* const to = output + group.local_members()[i] * part;
    if (inputs[i] != to) std::memcpy(to, inputs[i], part);
  }
}

void reduce(const Group& group, const hvd_batch& batch, Inputs inputs) {
  const size_t part = sizes_of(group, batch).part;
  for (const void*& input : inputs) {
    input = static_cast<const std::byte*>(input) + group.index() * part;
  }
  const auto dtype = static_cast<hvd_dtype>(batch.dtype);
  const ReduceFunction add = reduce_function(dtype, static_cast<hvd_reduce_op>(batch.reduce_op));
  add(batch.tensors[0].output, inputs.data(), inputs.size(), part / size_of(dtype),
      scale_before(batch), scale_after(batch));
}

// Returns whether the ranks of the group exchange the place of the batch's only input; equal on all ranks.
bool may_have_shared_input(Group& group, const hvd_batch& batch) {
  if (batch.op != HVD_ALLGATHER && batch.op != HVD_REDUCESCATTER) return false;
  const Sizes sizes = sizes_of(group, batch);
  return group.mesh().peer_heaps() != nullptr && group.size() > 1 &&
         std::max(sizes.input, sizes.output) >= kLeastShared;
}

// Returns the place of the input; empty for private memory.
std::optional<SharedHeap::Place> place_of_input(Group& group, const hvd_batch& batch) {
  const SharedHeap* heap = group.mesh().heap();
  if (heap == nullptr) return std::nullopt;
  return heap->find(batch.tensors[0].input, sizes_of(group, batch).input);
}

// Runs the batch in a step that the caller has reserved. The caller then posts kConsumed. All ranks have the same
// number of rows. An output may overlap its input only in this rank's part. `places`: inputs by local index.
Coroutine read_shared_inputs(Flow& flow, Group& group, const hvd_batch& batch, uint64_t step,
                             std::span<const SharedHeap::Place> places) {
  Result<Inputs> inputs = reach(group, batch, places);
  if (!inputs.ok()) {
    group.mesh().fail(inputs.status().with_context(group.mesh().describe(group.mesh().rank())));
  } else {
    if (batch.op == HVD_ALLGATHER)
      gather(group, batch, *inputs);
    else
      reduce(group, batch, *std::move(inputs));
    group.post_all(kReduced, step + 1);
  }
  // Wait until all other ranks have read the input, since this rank's program may then overwrite it.
  AllReached read(group, kReduced, step + 1);
  co_await flow.until(read);
}

constexpr size_t kFields = std::tuple_size_v<CallRecord>;

// An allgather of equally many 64-bit numbers from each member.
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

constexpr size_t kMostCounts =
    (kSmallBytes - sizeof(CallRecord) - sizeof(SharedHeap::Place)) / sizeof(int64_t);
// A member posts this record on its host before the data of a call.
struct Posted {
  CallRecord record;
  // The tensor of a large allreduce, or the input of an allgather or reduce-scatter. Size 0: private memory.
  SharedHeap::Place place;
  int64_t counts[kMostCounts];  // element counts of an alltoall
};
static_assert(sizeof(Posted) <= kSmallBytes);

const Posted& posted_by(Group& group, size_t local, uint64_t step) {
  return *reinterpret_cast<const Posted*>(group.sub_region().small(local, step).payload);
}

// Up to this size each member reads and reduces all data of an allreduce: dividing the additions
// among the members would take longer than reading the bytes from the others' caches.
constexpr size_t kBytesOfAllMembers = 128 * 1024;

bool goes_with_record(Group& group, const hvd_batch& batch, const Reduction& reduction) {
  if (batch.op != HVD_ALLREDUCE || reduction.count == 0) return false;
  const size_t most =
      std::min(kBytesOfAllMembers / group.local_count(), group.sub_region().chunk());
  return reduction.count * reduction.element <= most;
}

// Returns the places of all members; empty if the memory of any member is private.
std::vector<SharedHeap::Place> posted_places(Group& group, uint64_t step) {
  std::vector<SharedHeap::Place> places;
  for (size_t i = 0; i < group.local_count(); ++i) {
    places.push_back(posted_by(group, i, step).place);
    if (places.back().size == 0) return {};
  }
  return places;
}

// Returns whether an allreduce is so large that it posts its place or its first chunk with the record.
bool starts_with_record(const Group& group, const hvd_batch& batch, const Reduction& reduction) {
  return batch.op == HVD_ALLREDUCE && group.size() > 1 &&
         reduction.count * reduction.element > kSmallBytes;
}

// Adds the place of the tensor to `own`, or packs the first chunk. Returns whether it packed the chunk.
bool start_large(Group& group, const hvd_batch& batch, const Reduction& reduction, uint64_t step,
                 Posted& own) {
  if (may_be_registered(group, batch, reduction)) {
    if (const auto place = place_of(group, batch.tensors[0], reduction.element)) own.place = *place;
  }
  if (own.place.size > 0) return false;
  pack_first_chunk(group, batch, reduction, step);
  return true;
}

Coroutine finish_large(Flow& flow, Group& group, const hvd_batch& batch, const Reduction& reduction,
                       uint64_t step, bool is_packed) {
  const std::vector<SharedHeap::Place> places = posted_places(group, step);
  if (places.empty()) {
    co_await allreduce_local_from(flow, group, batch, reduction, step, is_packed);
    co_return;
  }
  co_await reduce_at_places(flow, group, batch, reduction, step, places);
  group.post_all(kConsumed, step + 1);
}

void reduce_posted(Group& group, const hvd_batch& batch, const Reduction& reduction,
                   uint64_t step) {
  const hvd_batch_tensor& tensor = batch.tensors[0];
  if (tensor.output == nullptr) return;
  const void* inputs[kMaxLocalRanks];
  for (size_t i = 0; i < group.local_count(); ++i) inputs[i] = group.sub_region().slot(i, step);
  inputs[group.local_index()] = tensor.input;
  reduction.reduce(tensor.output, inputs, group.local_count(), reduction.count, reduction.before,
                   reduction.after);
}

void compare_posted(Group& group, uint64_t step, CheckedCall& call) {
  const size_t members = group.local_count();
  call.is_same = true;
  for (size_t i = 0; i < members; ++i) {
    call.is_same &= posted_by(group, i, step).record == call.record;
  }
  if (!call.is_same) {
    for (size_t i = 0; i < members; ++i) {
      call.records.push_back(posted_by(group, i, step).record);
    }
  } else if (!call.counts.empty() && call.counts.size() <= kMostCounts) {
    call.all_counts.clear();
    for (size_t i = 0; i < members; ++i) {
      const int64_t* const counts = posted_by(group, i, step).counts;
      call.all_counts.insert(call.all_counts.end(), counts, counts + call.counts.size());
    }
  }
}

// On one host, each member reads the records of all members in one step, together with the data of a
// small allreduce and the counts of an alltoall. Sets *is_complete if that step also exchanged the data.
Coroutine compare_on_host(Flow& flow, Group& group, const hvd_batch& batch, CheckedCall& call,
                          bool* is_complete) {
  const Reduction reduction(batch);
  const uint64_t step = group.take_steps(1);
  if (!group.small_slot_is_free(step)) {
    AllReached consumed(group, kConsumed, step - 1);
    co_await flow.until(consumed);
  }
  const SubRegion& memory = group.sub_region();
  auto* const own = reinterpret_cast<Posted*>(memory.small(group.local_index(), step).payload);
  own->record = call.record;
  own->place = {};
  if (call.counts.size() <= kMostCounts) {
    std::copy(call.counts.begin(), call.counts.end(), own->counts);
  }
  const bool has_data = goes_with_record(group, batch, reduction);
  if (has_data) {
    std::memcpy(memory.slot(group.local_index(), step), batch.tensors[0].input,
                reduction.count * reduction.element);
  }
  const bool is_large = !has_data && starts_with_record(group, batch, reduction);
  const bool is_packed = is_large && start_large(group, batch, reduction, step, *own);
  const bool may_be_shared = may_have_shared_input(group, batch);
  if (may_be_shared) own->place = place_of_input(group, batch).value_or(SharedHeap::Place{});
  group.post_small(step);
  SmallArrived arrived(group, step);
  co_await flow.until(arrived);
  call.met = Clock::now();
  compare_posted(group, step, call);
  // A member that has posted this step has finished the previous step.
  group.known_consumed = step;
  *is_complete = (has_data || is_large) && call.is_same;
  if (*is_complete && is_large) {
    co_await finish_large(flow, group, batch, reduction, step, is_packed);
    co_return;
  }
  if (*is_complete) reduce_posted(group, batch, reduction, step);
  if (may_be_shared && call.is_same) {
    const std::vector<SharedHeap::Place> places = posted_places(group, step);
    *is_complete = !places.empty();
    if (*is_complete) co_await read_shared_inputs(flow, group, batch, step, places);
  }
  group.post_all(kConsumed, step + 1);
}

// Between hosts, one small allreduce computes the minimum and, by complements, the maximum of each field.
// The allreduce uses the steps of the group and the streams between its hosts, like the data that follow.
Coroutine compare_across(Flow& flow, Group& group, const hvd_batch& batch, CheckedCall& call) {
  std::array<uint64_t, 2 * kFields> least;
  for (size_t i = 0; i < kFields; ++i) {
    least[i] = call.record[i];
    least[kFields + i] = ~call.record[i];
  }
  SmallAllreduce compare(HVD_MIN, HVD_UINT64, least.data(), least.size(), batch.tuning);
  co_await allreduce(flow, group, compare.batch());
  call.met = Clock::now();
  call.is_same = true;
  for (size_t i = 0; i < kFields; ++i) call.is_same &= least[i] == ~least[kFields + i];
  if (call.is_same) co_return;
  call.records.resize(group.size());
  NumberGather records(group, call.record.data(), call.records.data(), kFields, batch.tuning);
  co_await allgather(flow, group, records.batch());
}

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

Coroutine run_checked(Flow& flow, Group& group, const hvd_batch& batch, CheckedCall& call) {
  SubRegionOpen open(group);
  co_await flow.until(open);
  call.failure = group.refusal();
  if (!call.failure.ok()) co_return;
  bool is_complete = false;
  call.all_counts.clear();
  if (group.host_count() == 1) {
    co_await compare_on_host(flow, group, batch, call, &is_complete);
  } else {
    co_await compare_across(flow, group, batch, call);
  }
  if (!call.is_same || is_complete) co_return;
  if (!call.counts.empty()) {
    if (call.all_counts.empty()) {
      call.all_counts.resize(group.size() * call.counts.size());
      NumberGather counts(group, call.counts.data(), call.all_counts.data(), call.counts.size(),
                          batch.tuning);
      co_await allgather(flow, group, counts.batch());
    }
    call.is_same = !differing_pair(call.all_counts, group.size());
    if (!call.is_same) co_return;
  }
  if (batch.op != HVD_BARRIER) co_await run(flow, group, batch);
}

}  // namespace hvd::collectives
