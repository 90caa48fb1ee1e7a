#include "runtime/submission/message_check.h"

#include <cmath>

#include "base/text.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {

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
