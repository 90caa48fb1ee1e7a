#include "runtime/submission/submission.h"

#include "base/text.h"
#include "runtime/submission/group_call_check.h"
#include "runtime/submission/tensor_table.h"

namespace hvd::runtime {

std::string name_text(const Submission& submission) {
  if (submission.name != nullptr) return submission.name->text;
  if (const auto& group = submission.group; group.members != nullptr) {
    const std::string name = cat("group ", group.members->name);
    return group.number == 0 ? name : cat(name, ", call ", group.number);
  }
  if (submission.has_left) return submission.own_name;
  const auto& message = submission.message;
  return message_text(submission.request.op, message.peer, message.tag);
}

std::string operation_text(const Submission& submission) {
  const int32_t op = submission.request.op;
  if (submission.group.members == nullptr) return operation_text(op, name_text(submission));
  return cat(group_op(submission.group.op).name, " '", printable(name_text(submission)), "'");
}

}  // namespace hvd::runtime
