#include "runtime/submission/submission_check.h"

#include <cstdint>

#include "base/check.h"
#include "base/operations/op_traits.h"
#include "base/text.h"
#include "collectives/kernels/reduction.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {
namespace {

constexpr std::string_view kBarrierName = "<barrier>";
constexpr int32_t kMaxDimensions = 64;
constexpr uint32_t kMaxTensors = 1 << 20;

// Returns the name of the operation for errors, for example "allreduce 'grad'".
std::string label(const hvd_submission& from) {
  return operation_text(from.op, from.name == nullptr ? "" : from.name);
}

Status check_root(const hvd_submission& from, const SetMembers& set) {
  if (!traits_of(from.op).has_root || set.index_of(from.root_rank) >= 0) return {};
  return invalid_argument(cat(label(from), ": invalid root rank ", from.root_rank,
                              set.id == 0 ? cat("; it must be from 0 to ", set.size() - 1)
                                          : cat("; process set ", set.id, " has ranks ",
                                                list_text(std::span<const int32_t>(set.ranks)))));
}

Status check_reduce_op(const hvd_submission& from) {
  if (!reduces(from.op)) return {};
  if (from.reduce_op < HVD_AVERAGE || from.reduce_op > HVD_PRODUCT) {
    return invalid_argument(cat(label(from), ": reduction ", from.reduce_op, " is unknown"));
  }
  if (from.op == HVD_REDUCESCATTER && from.reduce_op == HVD_ADASUM) {
    return invalid_argument(cat(label(from),
                                ": adasum of rows that go to different ranks has no "
                                "meaning; use allreduce, or average or sum"));
  }
  return {};
}

Status check_terms(const hvd_submission& from, const SetMembers& set) {
  if (traits_of(from.op).is_point_to_point) {
    return invalid_argument(
        cat(op_name(from.op), " is no operation of hvd_submit; call hvd_", op_name(from.op)));
  }
  if (traits_of(from.op).name.empty()) {
    return invalid_argument(cat("operation ", from.op, " is unknown"));
  }
  constexpr uint32_t kFlags =
      HVD_KEEPS_TENSORS | HVD_AWAITS_START | HVD_STAGED | HVD_TRIAL | HVD_STREAM_ORDERED;
  if ((from.flags & ~kFlags) != 0) {
    return invalid_argument(
        cat(label(from), ": flags has the value ", from.flags,
            ", and may have HVD_KEEPS_TENSORS, HVD_AWAITS_START, HVD_STAGED, HVD_TRIAL and "
            "HVD_STREAM_ORDERED only"));
  }
  if (traits_of(from.op).is_nameless) return {};
  if (from.name == nullptr || from.name[0] == '\0') {
    return invalid_argument(cat(op_name(from.op), " needs a name, the same on every rank"));
  }
  if (from.tensor_count == 0 || from.tensor_count > kMaxTensors || from.tensors == nullptr) {
    return invalid_argument(cat(label(from), ": it needs from 1 to ", kMaxTensors, " tensors"));
  }
  HVD_RETURN_IF_ERROR(check_reduce_op(from));
  return check_root(from, set);
}

// Returns an error if the reduction is not defined for the type (types.h).
template <typename Who>
Status check_reduction(int32_t reduce_op, int32_t dtype, const Who& who) {
  const bool is_float =
      dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 || dtype == HVD_FLOAT32 || dtype == HVD_FLOAT64;
  if (reduce_op == HVD_ADASUM && !is_float) {
    return invalid_argument(cat(who(), ": adasum needs float16, bfloat16, float32 or float64, not ",
                                dtype_name(dtype), "; convert the tensor, or use average or sum"));
  }
  if (reduce_op == HVD_AVERAGE && dtype == HVD_BOOL) {
    return invalid_argument(cat(who(),
                                ": bool has no average; convert the tensor, or use sum (any) "
                                "or product (all)"));
  }
  return {};
}

// Returns the bytes of this rank's rows of a reducescatter.
size_t bytes_of_rows(const TensorSpec& spec, const SetMembers& set) {
  if (spec.shape.empty()) return 0;
  const auto own =
      collectives::scattered_rows(static_cast<size_t>(spec.shape[0]),
                                  static_cast<size_t>(set.size()), static_cast<size_t>(set.index));
  return own.count * static_cast<size_t>(spec.row()) * dtype_size(spec.dtype);
}

Status copy_tensor(const hvd_submission& from, uint32_t index, bool reads, const SetMembers& set,
                   TensorSpec* spec, Submission* to) {
  const hvd_tensor& tensor = from.tensors[index];
  const auto who = [&] {
    return from.tensor_count > 1 ? cat(label(from), ", tensor ", index) : label(from);
  };
  if (dtype_size(tensor.dtype) == 0) {
    return invalid_argument(cat(who(), ": dtype ", tensor.dtype, " is unknown"));
  }
  if (reduces(from.op)) HVD_RETURN_IF_ERROR(check_reduction(from.reduce_op, tensor.dtype, who));
  if (tensor.ndim < 0 || tensor.ndim > kMaxDimensions ||
      (tensor.ndim > 0 && tensor.shape == nullptr)) {
    return invalid_argument(cat(who(), ": ", tensor.ndim, " dimensions are impossible"));
  }
  int64_t bytes = static_cast<int64_t>(dtype_size(tensor.dtype));
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] < 0 || __builtin_mul_overflow(bytes, tensor.shape[i], &bytes)) {
      return invalid_argument(cat(who(), ": dimension ", i, " is ", tensor.shape[i]));
    }
  }
  if (bytes > 0 && reads && tensor.input == nullptr) {
    return invalid_argument(cat(who(), ": its input is NULL"));
  }
  const bool writes_to_caller = !traits_of(from.op).makes_outputs;
  if (bytes > 0 && writes_to_caller && tensor.output == nullptr) {
    return invalid_argument(cat(who(), ": its output is NULL"));
  }
  spec->dtype = tensor.dtype;
  spec->shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  const bool takes_output = writes_to_caller || from.op == HVD_REDUCESCATTER;
  to->tensors[index] = {tensor.input, takes_output ? tensor.output : nullptr,
                        static_cast<size_t>(bytes), reads,
                        writes_to_caller ? static_cast<size_t>(bytes) : bytes_of_rows(*spec, set)};
  to->bytes += static_cast<uint64_t>(bytes);
  return {};
}

// Returns false if a split cannot hold the rows for one rank, and sets a refusal, which fails the work on all ranks.
bool holds_rows(const hvd_submission& from, int64_t rows, int32_t member, Submission* to) {
  if (rows <= INT32_MAX) return true;
  to->request.refusal = cat(label(from), ": ", rows, " rows for rank ", member,
                            " of its process set are more than the limit of ", INT32_MAX,
                            "; send them in several calls, or make rows larger");
  to->request.splits.clear();
  return false;
}

int64_t split_of(const hvd_submission& from, int32_t member) {
  return from.wide_splits != nullptr ? from.wide_splits[member] : from.splits[member];
}

Status copy_splits(const hvd_submission& from, int32_t size, Submission* to) {
  auto& splits = to->request.splits;
  splits.clear();
  if (traits_of(from.op).row_counts != RowCounts::kPerRank) return {};
  for (const TensorSpec& tensor : to->request.tensors) {
    if (tensor.shape.empty()) continue;  // verdict() gives all ranks this error
    const int64_t rows = tensor.shape[0];
    if (from.split_count == 0) {
      if (rows % size != 0) {
        return invalid_argument(cat(label(from), ": ", rows, " rows do not split evenly over ",
                                    size, " ranks; give splits"));
      }
      if (!holds_rows(from, rows / size, 0, to)) return {};
      splits.assign(static_cast<size_t>(size), static_cast<int32_t>(rows / size));
      continue;
    }
    if (from.split_count != static_cast<uint32_t>(size) ||
        (from.splits == nullptr && from.wide_splits == nullptr)) {
      return invalid_argument(
          cat(label(from), ": it has ", from.split_count, " splits for ", size, " ranks"));
    }
    int64_t sum = 0;
    splits.clear();
    for (int32_t i = 0; i < size; ++i) {
      const int64_t split = split_of(from, i);
      if (split < 0) return invalid_argument(cat(label(from), ": split ", i, " is ", split));
      if (!holds_rows(from, split, i, to)) return {};
      sum += split;
      splits.push_back(static_cast<int32_t>(split));
    }
    if (sum > rows) {
      return invalid_argument(
          cat(label(from), ": its splits name ", sum, " rows, the tensor has ", rows));
    }
  }
  return {};
}

}  // namespace

Status check_member(const hvd_submission& from, int32_t rank, const SetMembers* set) {
  if (set == nullptr) {
    return not_found(cat(label(from), ": Process set provided does not exist: ", from.process_set,
                         "; add it on every rank first"));
  }
  if (set->index >= 0) return {};
  return invalid_argument(cat(label(from), ": Rank ", rank, " is not a member of process set ",
                              set->id, ", which has ranks ",
                              list_text(std::span<const int32_t>(set->ranks))));
}

namespace {

void copy_place(const hvd_submission& from, Submission* to) {
  Request& request = to->request;
  request.device = traits_of(from.op).is_nameless ? static_cast<int32_t>(HVD_CPU) : from.device;
  to->own_device = from.device;
  if ((from.flags & HVD_STAGED) != 0 && request.is_on_device()) request.device = kStagedDevice;
  to->stream = request.is_on_device() ? from.stream : nullptr;
  to->ready_event = request.is_on_device() ? from.ready_event : nullptr;
}

}  // namespace

Status copy_submission(const hvd_submission& from, int32_t rank, const SetMembers& set,
                       Submission* to, std::string_view* name, bool* shared_name) {
  HVD_RETURN_IF_ERROR(check_terms(from, set));
  const OpTraits& traits = traits_of(from.op);
  if (traits.is_nameless)
    *name = from.op == HVD_JOIN ? kJoinName : kBarrierName;
  else
    *name = from.name;
  *shared_name = traits.is_nameless;

  Request& request = to->request;
  request.refusal.clear();
  request.op = from.op;
  request.reduce_op = traits.reduces ? from.reduce_op : static_cast<int32_t>(HVD_SUM);
  request.root = traits.has_root ? from.root_rank : 0;
  copy_place(from, to);
  request.prescale = traits.reduces && from.prescale != 0 ? from.prescale : 1;
  request.postscale = traits.reduces && from.postscale != 0 ? from.postscale : 1;
  const uint32_t count = traits.is_nameless ? 0 : from.tensor_count;
  request.tensors.resize(count);
  to->tensors.resize(count);
  to->process_set = set.id;
  to->set = set.serial;
  to->bytes = 0;
  to->keeps_tensors = (from.flags & HVD_KEEPS_TENSORS) != 0;
  to->is_trial = (from.flags & HVD_TRIAL) != 0;
  to->is_ordered = (from.flags & HVD_STREAM_ORDERED) != 0 && request.is_on_device();
  to->is_started.store((from.flags & HVD_AWAITS_START) == 0, std::memory_order_relaxed);
  const bool reads = !traits.has_root || from.root_rank == rank;
  for (uint32_t i = 0; i < count; ++i) {
    HVD_RETURN_IF_ERROR(copy_tensor(from, i, reads, set, &request.tensors[i], to));
  }
  to->program = from.program;
  return copy_splits(from, set.size(), to);
}

Status check_device(const hvd_submission& from, bool has_devices, std::atomic<int32_t>* own) {
  if (from.device == HVD_CPU || from.tensor_count == 0) return {};
  if (!has_devices) {
    return unimplemented(
        cat(label(from), ": device ", from.device,
            " has no operation plugin here: "
            "choose one by HOROVOD_GPU_OPERATIONS, or move the tensor to the CPU"));
  }
  if (from.device < 0) {
    return invalid_argument(cat(label(from), ": device ", from.device, " is unknown"));
  }
  if ((from.flags & HVD_STAGED) != 0) return {};
  int32_t first = HVD_CPU;
  if (own->compare_exchange_strong(first, from.device) || first == from.device) return {};
  return invalid_argument(cat(label(from), ": its tensor is on device ", from.device,
                              ", and this rank's earlier ones on device ", first,
                              ": a rank uses one device; start one rank for each"));
}

Status check_message(int32_t op, const hvd_message& from, int32_t rank, const SetMembers* set) {
  const auto who = [&] { return message_text(op, from.rank, from.tag); };
  if (set == nullptr) {
    return not_found(cat(who(), ": process set ", from.process_set,
                         " does not exist; add it on every rank first"));
  }
  if (set->index < 0) {
    return invalid_argument(cat(who(), ": rank ", rank, " is not a member of process set ", set->id,
                                ", which has ranks ",
                                list_text(std::span<const int32_t>(set->ranks))));
  }
  const bool is_any = op == HVD_RECV && from.rank == HVD_ANY_RANK;
  if (!is_any && set->index_of(from.rank) < 0) {
    return invalid_argument(cat(who(), ": invalid rank ", from.rank,
                                set->id == 0
                                    ? cat("; it must be from 0 to ", set->size() - 1)
                                    : cat("; process set ", set->id, " has ranks ",
                                          list_text(std::span<const int32_t>(set->ranks)))));
  }
  if (from.tag < 0) return invalid_argument(cat(who(), ": the tag must not be negative"));
  const size_t element = dtype_size(from.dtype);
  if (element == 0) return invalid_argument(cat(who(), ": dtype ", from.dtype, " is unknown"));
  int64_t bytes = 0;
  if (from.count < 0 || __builtin_mul_overflow(from.count, static_cast<int64_t>(element), &bytes)) {
    return invalid_argument(cat(who(), ": a count of ", from.count, " is impossible"));
  }
  if (bytes > 0 && from.data == nullptr)
    return invalid_argument(cat(who(), ": its memory is NULL"));
  if (!(from.timeout_seconds >= 0)) {
    return invalid_argument(
        cat(who(), ": a time limit of ", from.timeout_seconds, " s is impossible; 0 is no limit"));
  }
  return {};
}

void copy_message(int32_t op, const hvd_message& from, const SetMembers& set, Submission* to) {
  Request& request = to->request;
  request.refusal.clear();
  request.splits.clear();
  request.op = op;
  request.reduce_op = HVD_SUM;
  request.root = from.rank;
  request.device = HVD_CPU;
  request.prescale = request.postscale = 1;
  request.tensors.resize(1);
  request.tensors[0].dtype = from.dtype;
  request.tensors[0].shape.assign(1, from.count);
  const size_t bytes = static_cast<size_t>(from.count) * dtype_size(from.dtype);
  const bool sends = op == HVD_SEND;
  to->tensors.resize(1);
  to->tensors[0] = {sends ? from.data : nullptr, sends ? nullptr : from.data, bytes, sends, bytes};
  to->message = {};
  to->message.peer = from.rank;
  to->message.tag = from.tag;
  to->message.timeout = from.timeout_seconds;
  to->process_set = set.id;
  to->set = set.serial;
  to->bytes = bytes;
  to->keeps_tensors = to->is_trial = false;
  to->own_device = HVD_CPU;
  to->program = from.program;
  to->stream = to->ready_event = nullptr;
  to->name = nullptr;
}

}  // namespace hvd::runtime
