#include "ops/ccl/batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "base/dtype.h"
#include "base/operations/op_traits.h"

namespace hvd::ops::ccl {
namespace {

// oneCCL's types by hvd_dtype, and its reductions by hvd_reduce_op; -1: it has none.
constexpr int kTypes[] = {abi::kUint8,    abi::kInt8,    abi::kUint16,  abi::kInt16,   abi::kInt32,
                          abi::kInt64,    abi::kFloat16, abi::kFloat32, abi::kFloat64, abi::kUint8,
                          abi::kBfloat16, abi::kUint32,  abi::kUint64};
constexpr int kReductions[] = {-1, abi::kSum, -1, abi::kMin, abi::kMax, abi::kProduct};

std::vector<size_t> in_bytes(const std::vector<int64_t>& counts, size_t width) {
  std::vector<size_t> bytes;
  bytes.reserve(counts.size());
  for (const int64_t count : counts) bytes.push_back(static_cast<size_t>(count) * width);
  return bytes;
}

size_t sum_of(const std::vector<size_t>& parts) {
  return std::accumulate(parts.begin(), parts.end(), size_t{0});
}

std::span<const hvd_batch_tensor> tensors_of(const hvd_batch& batch) {
  return {batch.tensors, batch.tensor_count};
}

}  // namespace

bool can_run(const hvd_batch& batch, bool has_halves) {
  const bool adds = traits_of(batch.op).reduces;
  const hvd_dtype dtype = sum_dtype(batch);
  const bool is_half = dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16;
  const bool is_float = is_half || dtype == HVD_FLOAT32 || dtype == HVD_FLOAT64;
  // oneCCL drops a NaN on some ranks and keeps it on others.
  const bool loses_nan =
      adds && is_float && (batch.reduce_op == HVD_MIN || batch.reduce_op == HVD_MAX);
  return is_known(batch) && !loses_nan && (has_halves || !adds || !is_half);
}

void CclBatch::finish() {
  write_outputs();
  for (const auto& event : events_) api_.destroy_event(event.get());
  events_.clear();
  buffers_.give(std::move(sent_));
  buffers_.give(std::move(received_));
}

size_t CclBatch::width() const { return size_of(sum_dtype(batch_)); }

std::byte* CclBatch::room(Buffer* buffer, size_t bytes) {
  *buffer = buffers_.take(bytes);
  return buffer->bytes.get();
}

Status CclBatch::start() {
  Status status;
  switch (batch_.op) {
    case HVD_ALLREDUCE:
      status = reduce();
      break;
    case HVD_REDUCESCATTER:
      status = reducescatter();
      break;
    case HVD_ALLGATHER:
      status = allgather();
      break;
    case HVD_BROADCAST:
      status = broadcast();
      break;
    default:
      status = alltoall();
      break;
  }
  return status;
}

Result<bool> CclBatch::test() {
  return std::all_of(events_.begin(), events_.end(),
                     [this](const auto& event) { return api_.test_event(event.get()); });
}

Status CclBatch::reduce() {
  const auto count = static_cast<size_t>(total_count(batch_));
  direct_ = is_direct(batch_) && !works_by_itself();
  const void* from = nullptr;
  void* to = nullptr;
  if (direct_) {
    from = to = batch_.tensors[0].output;
    if (batch_.prescale == 1 || batch_.dtype == HVD_BOOL)
      from = batch_.tensors[0].input;
    else
      scale(to, batch_.tensors[0].input, batch_.dtype, total_count(batch_),
            collectives::scale_before(batch_));
  } else {
    std::byte* memory = room(&received_, count * width());
    if (memory == nullptr) return internal_error("there is no memory to pack an allreduce");
    pack_reduce(batch_, memory);
    from = to = memory;
  }
  if (count == 0) return {};
  add(new abi::Event(
      api_.all_reduce.function(from, to, count, kTypes[sum_dtype(batch_)],
                               kReductions[reduction_of_numbers(batch_.dtype, batch_.reduce_op)],
                               communicator(), *api_.all_reduce.defaults, none_)));
  return {};
}

// oneCCL scatters only parts of equal size; for other sizes each member keeps its part of the complete sum.
Status CclBatch::reducescatter() {
  const std::vector<int64_t> counts = scatter_counts(batch_, members_.size);
  const auto own = static_cast<size_t>(counts[static_cast<size_t>(members_.index)]);
  const auto count = static_cast<size_t>(total_count(batch_));
  scatters_ =
      std::all_of(counts.begin(), counts.end(), [&](int64_t one) { return one == counts.front(); });
  std::byte* from = room(&sent_, count * width());
  std::byte* to = scatters_ ? room(&received_, own * width()) : from;
  if (from == nullptr || to == nullptr) {
    return internal_error("there is no memory to pack a reducescatter");
  }
  pack_scatter(batch_, members_.size, from);
  if (count == 0) return {};
  const int type = kTypes[sum_dtype(batch_)];
  const int operation = kReductions[reduction_of_numbers(batch_.dtype, batch_.reduce_op)];
  add(scatters_ ? new abi::Event(api_.reduce_scatter.function(from, to, own, type, operation,
                                                              communicator(),
                                                              *api_.reduce_scatter.defaults, none_))
                : new abi::Event(api_.all_reduce.function(from, to, count, type, operation,
                                                          communicator(), *api_.all_reduce.defaults,
                                                          none_)));
  return {};
}

// Operations without arithmetic treat elements of any type as bytes.
Status CclBatch::allgather() {
  const std::vector<size_t> parts = in_bytes(gather_counts(batch_, members_.size), width());
  const size_t own = parts[static_cast<size_t>(members_.index)];
  std::byte* from = room(&sent_, own);
  std::byte* to = room(&received_, sum_of(parts));
  if (from == nullptr || to == nullptr) {
    return internal_error("there is no memory to pack an allgather");
  }
  pack_gather(batch_, from);
  if (sum_of(parts) == 0) return {};
  add(new abi::Event(api_.all_gather.function(from, own, to, parts, abi::kInt8, communicator(),
                                              *api_.all_gather.defaults, none_)));
  return {};
}

Status CclBatch::broadcast() {
  const size_t bytes = static_cast<size_t>(total_count(batch_)) * width();
  std::byte* at = room(&received_, bytes);
  if (at == nullptr) return internal_error("there is no memory for a broadcast");
  if (batch_.root == members_.index) pack_gather(batch_, at);
  if (bytes == 0) return {};
  add(new abi::Event(api_.broadcast.function(at, bytes, abi::kInt8, batch_.root, communicator(),
                                             *api_.broadcast.defaults, none_)));
  return {};
}

// Exchanges one tensor after another, in an order that is equal on all members.
Status CclBatch::alltoall() {
  std::vector<std::vector<size_t>> sent, received;
  for (const hvd_batch_tensor& tensor : tensors_of(batch_)) {
    const size_t row = static_cast<size_t>(tensor.row) * width();
    const auto members = static_cast<size_t>(members_.size);
    sent.push_back(in_bytes({tensor.rank_rows, tensor.rank_rows + members}, row));
    received.push_back(in_bytes({tensor.from_rows, tensor.from_rows + members}, row));
  }
  const auto all = [](const std::vector<std::vector<size_t>>& parts) {
    return std::accumulate(parts.begin(), parts.end(), size_t{0},
                           [](size_t sum, const auto& one) { return sum + sum_of(one); });
  };
  std::byte* from = room(&sent_, all(sent));
  std::byte* to = room(&received_, all(received));
  if (from == nullptr || to == nullptr) {
    return internal_error("there is no memory to pack an alltoall");
  }
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sum_of(sent[i]) > 0) std::memcpy(from, batch_.tensors[i].input, sum_of(sent[i]));
    add(new abi::Event(api_.all_to_all.function(from, sent[i], to, received[i], abi::kInt8,
                                                communicator(), *api_.all_to_all.defaults, none_)));
    from += sum_of(sent[i]);
    to += sum_of(received[i]);
  }
  return {};
}

void CclBatch::write_outputs() {
  const std::byte* at = received_.bytes.get();
  switch (batch_.op) {
    case HVD_ALLREDUCE: {
      if (!direct_) return unpack_reduce(batch_, at);
      void* output = batch_.tensors[0].output;
      return scale(output, output, batch_.dtype, total_count(batch_),
                   collectives::scale_after(batch_));
    }
    case HVD_ALLGATHER:
      return unpack_gather(batch_, members_.size, at);
    case HVD_REDUCESCATTER: {
      if (!scatters_) {
        const std::vector<int64_t> counts = scatter_counts(batch_, members_.size);
        const auto before =
            std::accumulate(counts.begin(), counts.begin() + members_.index, int64_t{0});
        at = sent_.bytes.get() + static_cast<size_t>(before) * width();
      }
      return unpack_scatter(batch_, members_.index, members_.size, at);
    }
    default:
      return unpack_whole(batch_, members_.size, at);
  }
}

}  // namespace hvd::ops::ccl
