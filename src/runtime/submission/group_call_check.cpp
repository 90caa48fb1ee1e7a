#include "runtime/submission/group_call_check.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/text.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {
namespace {

// Numbers of elements of the input and of the output.
struct Counts {
  int64_t input = 0, output = 0;
};

// Returns the sums of an alltoall's counts; empty if a count is negative or a sum overflows.
std::optional<Counts> sums_of(const hvd_group_call& from, size_t members) {
  Counts counts;
  for (size_t i = 0; i < members; ++i) {
    if (from.send_counts[i] < 0 || from.recv_counts[i] < 0 ||
        __builtin_add_overflow(counts.input, from.send_counts[i], &counts.input) ||
        __builtin_add_overflow(counts.output, from.recv_counts[i], &counts.output)) {
      return std::nullopt;
    }
  }
  return counts;
}

// Returns nullopt if the counts are negative or memory cannot hold so many elements. `rank`: this member's rank in the
// job.
std::optional<Counts> counts_of(const hvd_group_call& from, int32_t rank, size_t members) {
  const GroupOp op = group_op(from.op);
  auto counts = from.op == HVD_ALLTOALL ? sums_of(from, members) : Counts{from.count, from.count};
  if (!counts) return counts;
  if (op.root_writes && rank != from.root_rank) counts->output = 0;
  if (op.root_reads && rank != from.root_rank) counts->input = 0;
  const bool gathers = from.op == HVD_ALLGATHER || from.op == HVD_GROUP_GATHER;
  const bool scatters = from.op == HVD_REDUCESCATTER || from.op == HVD_GROUP_SCATTER;
  int64_t* const whole = gathers ? &counts->output : scatters ? &counts->input : nullptr;
  const auto times = static_cast<int64_t>(members);
  if (whole != nullptr && __builtin_mul_overflow(*whole, times, whole)) return std::nullopt;
  const auto element = static_cast<int64_t>(dtype_size(from.dtype));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(counts->input, element, &bytes) ||
      __builtin_mul_overflow(counts->output, element, &bytes)) {
    return std::nullopt;
  }
  return counts;
}

std::string_view op_text(int32_t op) {
  const std::string_view name = group_op(op).name;
  return name.empty() ? op_name(op) : name;
}

Status refused(const hvd_group_call& from, const GroupMembers& members, const std::string& why) {
  return invalid_argument(cat(op_text(from.op), " of group ", members.name, ": ", why));
}

Status check_reduction(const hvd_group_call& from, const GroupMembers& members) {
  if (from.reduce_op < HVD_AVERAGE || from.reduce_op > HVD_PRODUCT ||
      from.reduce_op == HVD_ADASUM) {
    return refused(from, members, cat("reduction ", from.reduce_op, " is not one of groups"));
  }
  if (from.reduce_op != HVD_AVERAGE || from.dtype != HVD_BOOL) return {};
  return refused(from, members, cat("an average of ", dtype_name(from.dtype), "; use the sum"));
}

// Refuses overlaps that would be read after they were written. The input may be the output of an allreduce, reduce or
// broadcast, and the member's own part of the output of an allgather or gather.
Status check_overlap(const hvd_group_call& from, int32_t rank, const GroupMembers& members,
                     const Counts& counts) {
  const auto element = static_cast<int64_t>(dtype_size(from.dtype));
  const auto* const input = static_cast<const std::byte*>(from.input);
  const auto* const output = static_cast<const std::byte*>(from.output);
  const bool overlaps = std::less<>()(input, output + counts.output * element) &&
                        std::less<>()(output, input + counts.input * element);
  if (!overlaps) return {};
  const auto own = std::ranges::lower_bound(members.ranks, rank) - members.ranks.begin();
  const bool gathers = from.op == HVD_ALLGATHER || from.op == HVD_GROUP_GATHER;
  const bool keeps_size =
      from.op == HVD_ALLREDUCE || from.op == HVD_GROUP_REDUCE || from.op == HVD_BROADCAST;
  if (gathers && input == output + own * from.count * element) return {};
  if (keeps_size && input == output) return {};
  return refused(
      from, members,
      "its input and output overlap; give the output itself as the input of an allreduce, reduce "
      "or broadcast, this member's part of the output in an allgather or gather, or other memory");
}

Status check_memory(const hvd_group_call& from, int32_t rank, const GroupMembers& members) {
  if (from.count < 0) {
    return refused(from, members, cat("a count of ", from.count, " is impossible"));
  }
  const auto counts = counts_of(from, rank, members.ranks.size());
  if (!counts) return refused(from, members, "its counts are impossible");
  if (counts->input > 0 && from.input == nullptr) {
    return refused(from, members, "its input is NULL");
  }
  if (counts->output > 0 && from.output == nullptr) {
    return refused(from, members, "its output is NULL");
  }
  return check_overlap(from, rank, members, *counts);
}

}  // namespace

GroupOp group_op(int32_t op) {
  switch (op) {
    case HVD_GROUP_REDUCE:
      return {"reduce", HVD_ALLREDUCE, true, true, true};
    case HVD_GROUP_GATHER:
      return {"gather", HVD_ALLTOALL, false, true, true};
    case HVD_GROUP_SCATTER:
      return {"scatter", HVD_ALLTOALL, false, true, false, true};
    default: {
      const OpTraits& traits = traits_of(op);
      if (traits.is_point_to_point || op == HVD_JOIN) return {};
      return {traits.name, op, traits.reduces, traits.has_root};
    }
  }
}

Status check_group(const std::vector<int32_t>& ranks, int32_t rank, int32_t size) {
  const std::string text = list_text(std::span<const int32_t>(ranks));
  if (ranks.empty() || ranks.front() < 0 || ranks.back() >= size) {
    return invalid_argument(cat("a group of ranks ", text, ": they must be from 0 to ", size - 1));
  }
  if (std::ranges::adjacent_find(ranks, std::greater_equal<>()) != ranks.end()) {
    return invalid_argument(cat("a group of ranks ", text, ": they must ascend"));
  }
  if (std::ranges::binary_search(ranks, rank)) return {};
  return invalid_argument(cat("a group of ranks ", text, ": rank ", rank, " is not one of them"));
}

Status check_group_call(const hvd_group_call& from, int32_t rank, const GroupMembers& members) {
  const GroupOp op = group_op(from.op);
  if (op.name.empty()) {
    return refused(from, members, cat("operation ", from.op, " is not one of groups"));
  }
  if (from.op == HVD_BARRIER) return {};
  if (dtype_size(from.dtype) == 0) {
    return refused(from, members, cat("dtype ", from.dtype, " is unknown"));
  }
  if (op.reduces) HVD_RETURN_IF_ERROR(check_reduction(from, members));
  if (op.has_root && !std::ranges::binary_search(members.ranks, from.root_rank)) {
    return refused(from, members,
                   cat("invalid root rank ", from.root_rank, "; the group has ranks ",
                       list_text(std::span<const int32_t>(members.ranks))));
  }
  if (from.op == HVD_ALLTOALL && (from.send_counts == nullptr || from.recv_counts == nullptr)) {
    return refused(from, members, "send_counts and recv_counts are needed");
  }
  return check_memory(from, rank, members);
}

void copy_group_call(const hvd_group_call& from, int32_t rank,
                     std::shared_ptr<const GroupMembers> members, Submission* to) {
  const GroupOp op = group_op(from.op);
  Request& request = to->request;
  request.refusal.clear();
  request.splits.clear();
  request.op = op.runs_as;
  request.reduce_op = op.reduces ? from.reduce_op : static_cast<int32_t>(HVD_SUM);
  request.root = op.has_root ? from.root_rank : 0;
  request.device = HVD_CPU;
  request.prescale = op.reduces && from.prescale != 0 ? from.prescale : 1;
  request.postscale = op.reduces && from.postscale != 0 ? from.postscale : 1;
  to->process_set = 0;
  to->set = 0;
  to->message = {};
  to->keeps_tensors = to->is_trial = false;
  to->own_device = HVD_CPU;
  to->program = from.program;
  to->stream = to->ready_event = nullptr;
  to->name = nullptr;
  to->bytes = 0;
  to->tensors.clear();
  request.tensors.clear();
  auto& call = to->group;
  const size_t size = members->ranks.size();
  call.members = std::move(members);
  call.number = 0;
  call.op = from.op;
  call.tag = from.tag;
  call.count = from.count;
  call.counts.clear();
  call.begins_step = from.begins_step != 0;
  call.input = nullptr;
  call.output = nullptr;
  if (from.op == HVD_BARRIER) return;
  const size_t element = dtype_size(from.dtype);
  request.tensors.push_back({from.dtype, {from.count}});
  const Counts counts = *counts_of(from, rank, size);
  if (from.op == HVD_ALLTOALL) {
    call.counts.assign(from.send_counts, from.send_counts + size);
    call.counts.insert(call.counts.end(), from.recv_counts, from.recv_counts + size);
    call.count = counts.input;
  }
  const size_t read = static_cast<size_t>(counts.input) * element;
  const size_t written = static_cast<size_t>(counts.output) * element;
  if (read > 0) call.input = from.input;
  if (written > 0) call.output = from.output;
  to->bytes = read;
  if (written > 0) to->tensors.push_back({nullptr, call.output, written, false, written});
  // An input within the output is this member's part of the output.
  const auto* const input = static_cast<const std::byte*>(call.input);
  const auto* const output = static_cast<const std::byte*>(call.output);
  const bool overlaps =
      std::less<>()(input, output + written) && std::less<>()(output, input + read);
  if (!overlaps && read > 0) to->tensors.push_back({call.input, nullptr, read, true, 0});
}

}  // namespace hvd::runtime
