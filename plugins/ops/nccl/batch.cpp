#include "ops/nccl/batch.h"

#include <algorithm>
#include <numeric>

#include "base/dtype.h"
#include "base/operations/op_traits.h"
#include "collectives/kernels/reduce_kernels.h"
#include "ops/common/batch_memory.h"
#include "ops/nccl/reductions.h"

namespace hvd::ops::nccl {
namespace {

int64_t sum_of(const int64_t* rows, int32_t size) {
  return std::accumulate(rows, rows + size, int64_t{0});
}

}  // namespace

bool can_run(const hvd_batch& batch, int32_t size, bool has_factors) {
  if (batch.device == HVD_CPU || !is_dtype(batch.dtype)) return false;
  if (traits_of(batch.op).reduces) return reduction_of(batch, size, has_factors).has_value();
  return batch.op == HVD_ALLGATHER || batch.op == HVD_BROADCAST || batch.op == HVD_ALLTOALL;
}

bool multiplies_after(const hvd_batch& batch, int32_t size, bool has_factors) {
  if (!traits_of(batch.op).reduces) return false;
  const auto found = reduction_of(batch, size, has_factors);
  return found && !found->after.empty();
}

size_t Collectives::width() const { return size_of(static_cast<hvd_dtype>(batch_.dtype)); }

Status Collectives::check(int result, const char* what) const {
  return api_.of_nccl(result, what, channel_.comm());
}

const std::byte* Collectives::input(uint32_t tensor) const {
  const void* given = batch_.tensors[tensor].input;
  return static_cast<const std::byte*>(given != nullptr ? given : inputs_[tensor]);
}

std::byte* Collectives::output(uint32_t tensor) const {
  void* given = batch_.tensors[tensor].output;
  return static_cast<std::byte*>(given != nullptr ? given : outputs_[tensor]);
}

Status Collectives::enqueue(const Channel::Pause& pause, void* began) {
  HVD_RETURN_IF_ERROR(prepare());
  HVD_RETURN_IF_ERROR(api_.of_device(api_.event_record(began, channel_.stream()), "EventRecord"));
  if (grid_ == nullptr) {
    HVD_RETURN_IF_ERROR(group(channel_, pause, &Collectives::call));
  } else {
    Channel& inside = *channel_.sub_communicator(Channel::kInside);
    Channel& across = *channel_.sub_communicator(Channel::kAcross);
    HVD_RETURN_IF_ERROR(group(inside, pause, &Collectives::reduce_inside));
    HVD_RETURN_IF_ERROR(group(across, pause, &Collectives::reduce_across));
    HVD_RETURN_IF_ERROR(group(inside, pause, &Collectives::gather_inside));
  }
  for (const double factor : after_) {
    Channel& alone = *channel_.sub_communicator(Channel::kAlone);
    HVD_ASSIGN_OR_RETURN(multiplication_, alone.sum_times(factor, type_));
    HVD_RETURN_IF_ERROR(group(alone, pause, &Collectives::multiply));
  }
  for (void* memory : lent_) api_.free_async(memory, channel_.stream());
  return {};
}

Status Collectives::group(Channel& on, const Channel::Pause& pause,
                          Status (Collectives::*one)(uint32_t)) {
  // After a long call, the job may have abandoned this thread, and the batch may no longer exist.
  if (!pause(std::chrono::microseconds(0))) return aborted("NCCL was given up");
  HVD_RETURN_IF_ERROR(api_.of_nccl(api_.group_start(), "ncclGroupStart", on.comm()));
  Status status;
  for (uint32_t i = 0; i < batch_.tensor_count && status.ok(); ++i) status = (this->*one)(i);
  const Status ended = api_.of_nccl(api_.group_end(), "ncclGroupEnd", on.comm());
  HVD_RETURN_IF_ERROR(status);
  HVD_RETURN_IF_ERROR(ended);
  return on.settle(pause);
}

// Makes the stream wait for the inputs, and makes memory and a custom reduction, before the group begins.
Status Collectives::prepare() {
  inputs_.assign(batch_.tensor_count, nullptr);
  outputs_.assign(batch_.tensor_count, nullptr);
  void* waited = nullptr;
  for (uint32_t i = 0; batch_.ready_events != nullptr && i < batch_.tensor_count; ++i) {
    void* event = batch_.ready_events[i];
    if (event == nullptr || event == waited) continue;
    waited = event;
    HVD_RETURN_IF_ERROR(
        api_.of_device(api_.stream_wait_event(channel_.stream(), event, 0), "StreamWaitEvent"));
  }
  if (traits_of(batch_.op).reduces) HVD_RETURN_IF_ERROR(prepare_reduction());
  for (uint32_t i = 0; i < batch_.tensor_count; ++i) {
    const hvd_batch_tensor& tensor = batch_.tensors[i];
    int64_t made = 0;
    switch (batch_.op) {
      case HVD_ALLREDUCE:
        if (tensor.input == nullptr && tensor.count > 0) HVD_RETURN_IF_ERROR(make_neutral(i));
        break;
      case HVD_ALLGATHER:
        made = sum_of(tensor.rank_rows, place_.size) * tensor.row;
        break;
      case HVD_ALLTOALL:
        made = sum_of(tensor.from_rows, place_.size) * tensor.row;
        break;
      case HVD_REDUCESCATTER:
        made = kept_of(tensor, place_.index, place_.size).second;
        break;
      default:
        break;
    }
    if (made > 0 && tensor.output == nullptr) HVD_RETURN_IF_ERROR(make_output(i, made));
  }
  return {};
}

Status Collectives::prepare_reduction() {
  const auto found = reduction_of(batch_, place_.size, api_.red_op_create_pre_mul_sum != nullptr);
  if (!found) return internal_error("NCCL has no such reduction");
  type_ = found->type;
  operation_ = across_ = found->operation;
  after_ = found->after;
  if (found->factor == 1) return {};
  // A custom reduction is valid only on the communicator that created it.
  Channel& first = grid_ == nullptr ? channel_ : *channel_.sub_communicator(Channel::kInside);
  HVD_ASSIGN_OR_RETURN(operation_, first.sum_times(found->factor, found->type));
  return {};
}

Status Collectives::make_output(uint32_t tensor, int64_t count) {
  const size_t size = static_cast<size_t>(count) * width();
  void*& made = outputs_[tensor];
  if (batch_.made_outputs == nullptr) {
    HVD_ASSIGN_OR_RETURN(made, Memory::take(api_, size, channel_.stream()));
    lent_.push_back(made);
  } else {
    HVD_ASSIGN_OR_RETURN(made, memory_.take_output(api_, size, channel_.stream()));
    has_spilled_ |= memory_.is_pinned(made);
    batch_.made_outputs[tensor] = made;
  }
  return {};
}

// Makes the input of a joined rank: the neutral element of the reduction. The rank drops the result.
Status Collectives::make_neutral(uint32_t tensor) {
  const auto count = static_cast<size_t>(batch_.tensors[tensor].count);
  std::vector<std::byte>& host = kept_.emplace_back(count * width());
  collectives::fill_neutral(host.data(), static_cast<hvd_dtype>(batch_.dtype),
                            static_cast<hvd_reduce_op>(batch_.reduce_op), count);
  HVD_ASSIGN_OR_RETURN(inputs_[tensor], Memory::take(api_, host.size(), channel_.stream()));
  lent_.push_back(inputs_[tensor]);
  if (batch_.tensors[tensor].output == nullptr) outputs_[tensor] = inputs_[tensor];
  return api_.of_device(api_.memcpy_async(inputs_[tensor], host.data(), host.size(),
                                          abi::kCopyDefault, channel_.stream()),
                        "MemcpyAsync");
}

Status Collectives::call(uint32_t tensor) {
  switch (batch_.op) {
    case HVD_ALLREDUCE:
      return allreduce(tensor);
    case HVD_REDUCESCATTER:
      return reducescatter(tensor);
    case HVD_ALLGATHER:
      return allgather(tensor);
    case HVD_BROADCAST:
      return broadcast(tensor);
    default:
      return alltoall(tensor);
  }
}

Status Collectives::allreduce(uint32_t tensor) {
  const auto count = static_cast<size_t>(batch_.tensors[tensor].count);
  if (count == 0) return {};
  return check(api_.all_reduce(input(tensor), output(tensor), count, type_, operation_,
                               channel_.comm(), channel_.stream()),
               "ncclAllReduce");
}

size_t Collectives::part_of(uint32_t tensor) const {
  return static_cast<size_t>(batch_.tensors[tensor].count) / static_cast<size_t>(grid_->places);
}

Status Collectives::reduce_inside(uint32_t tensor) {
  const auto count = static_cast<size_t>(batch_.tensors[tensor].count);
  const size_t part = part_of(tensor), parts = part * static_cast<size_t>(grid_->places);
  const Channel& on = *channel_.sub_communicator(Channel::kInside);
  if (part > 0) {
    std::byte* own = output(tensor) + part * static_cast<size_t>(grid_->place) * width();
    HVD_RETURN_IF_ERROR(check(
        api_.reduce_scatter(input(tensor), own, part, type_, operation_, on.comm(), on.stream()),
        "ncclReduceScatter"));
  }
  if (parts == count) return {};
  return check(api_.all_reduce(input(tensor) + parts * width(), output(tensor) + parts * width(),
                               count - parts, type_, operation_, on.comm(), on.stream()),
               "ncclAllReduce");
}

Status Collectives::reduce_across(uint32_t tensor) {
  const auto count = static_cast<size_t>(batch_.tensors[tensor].count);
  const size_t part = part_of(tensor), parts = part * static_cast<size_t>(grid_->places);
  const Channel& on = *channel_.sub_communicator(Channel::kAcross);
  const auto sum = [&](size_t first, size_t size) -> Status {
    std::byte* at = output(tensor) + first * width();
    if (size == 0) return {};
    return check(api_.all_reduce(at, at, size, type_, across_, on.comm(), on.stream()),
                 "ncclAllReduce");
  };
  HVD_RETURN_IF_ERROR(sum(part * static_cast<size_t>(grid_->place), part));
  return sum(parts, count - parts);
}

Status Collectives::gather_inside(uint32_t tensor) {
  const size_t part = part_of(tensor) * width();
  const Channel& on = *channel_.sub_communicator(Channel::kInside);
  std::byte* to = output(tensor);
  if (part == 0) return {};
  return check(api_.all_gather(to + part * static_cast<size_t>(grid_->place), to, part, abi::kInt8,
                               on.comm(), on.stream()),
               "ncclAllGather");
}

// Multiplies an output by a factor: NCCL sums the products of this rank alone.
Status Collectives::multiply(uint32_t index) {
  const hvd_batch_tensor& tensor = batch_.tensors[index];
  const int64_t count = batch_.op == HVD_REDUCESCATTER
                            ? kept_of(tensor, place_.index, place_.size).second
                            : tensor.count;
  if (count == 0) return {};
  const Channel& alone = *channel_.sub_communicator(Channel::kAlone);
  return check(api_.all_reduce(output(index), output(index), static_cast<size_t>(count), type_,
                               multiplication_, alone.comm(), alone.stream()),
               "ncclAllReduce");
}

// NCCL's reduce-scatter needs parts of equal size. Parts of other sizes are reduced to each member in turn.
Status Collectives::reducescatter(uint32_t index) {
  const hvd_batch_tensor& tensor = batch_.tensors[index];
  if (tensor.count == 0 || tensor.row == 0) return {};
  if (tensor.count / tensor.row % place_.size == 0) {
    return check(api_.reduce_scatter(input(index), output(index),
                                     static_cast<size_t>(tensor.count / place_.size), type_,
                                     operation_, channel_.comm(), channel_.stream()),
                 "ncclReduceScatter");
  }
  for (int32_t member = 0; member < place_.size; ++member) {
    const auto [first, count] = kept_of(tensor, member, place_.size);
    if (count == 0) continue;
    HVD_RETURN_IF_ERROR(check(api_.reduce(input(index) + static_cast<size_t>(first) * width(),
                                          output(index), static_cast<size_t>(count), type_,
                                          operation_, member, channel_.comm(), channel_.stream()),
                              "ncclReduce"));
  }
  return {};
}

// Sends elements of any type as bytes, since an allgather does not compute.
Status Collectives::allgather(uint32_t index) {
  const hvd_batch_tensor& tensor = batch_.tensors[index];
  const int64_t* rows = tensor.rank_rows;
  const size_t row = static_cast<size_t>(tensor.row) * width();
  std::byte* to = output(index);
  if (row == 0 || to == nullptr) return {};
  if (std::all_of(rows, rows + place_.size, [&](int64_t one) { return one == rows[0]; })) {
    return check(api_.all_gather(input(index), to, static_cast<size_t>(rows[0]) * row, abi::kInt8,
                                 channel_.comm(), channel_.stream()),
                 "ncclAllGather");
  }
  for (int32_t member = 0; member < place_.size; ++member) {
    const size_t bytes = static_cast<size_t>(rows[member]) * row;
    if (bytes == 0) continue;
    const void* from = member == place_.index ? input(index) : to;
    HVD_RETURN_IF_ERROR(check(
        api_.broadcast(from, to, bytes, abi::kInt8, member, channel_.comm(), channel_.stream()),
        "ncclBroadcast"));
    to += bytes;
  }
  return {};
}

Status Collectives::broadcast(uint32_t index) {
  const hvd_batch_tensor& tensor = batch_.tensors[index];
  const size_t bytes = static_cast<size_t>(tensor.count) * width();
  if (bytes == 0) return {};
  const void* from = batch_.root == place_.index ? tensor.input : tensor.output;
  return check(api_.broadcast(from, tensor.output, bytes, abi::kInt8, batch_.root, channel_.comm(),
                              channel_.stream()),
               "ncclBroadcast");
}

Status Collectives::alltoall(uint32_t index) {
  const hvd_batch_tensor& tensor = batch_.tensors[index];
  const size_t row = static_cast<size_t>(tensor.row) * width();
  const std::byte* from = input(index);
  std::byte* to = output(index);
  for (int32_t member = 0; member < place_.size; ++member) {
    const size_t sent = static_cast<size_t>(tensor.rank_rows[member]) * row;
    const size_t received = static_cast<size_t>(tensor.from_rows[member]) * row;
    if (sent > 0) {
      HVD_RETURN_IF_ERROR(
          check(api_.send(from, sent, abi::kInt8, member, channel_.comm(), channel_.stream()),
                "ncclSend"));
      from += sent;
    }
    if (received > 0) {
      HVD_RETURN_IF_ERROR(
          check(api_.recv(to, received, abi::kInt8, member, channel_.comm(), channel_.stream()),
                "ncclRecv"));
      to += received;
    }
  }
  return {};
}

}  // namespace hvd::ops::nccl
