#include "runtime/submission/memory_table.h"

#include <string_view>

#include "base/text.h"
#include "runtime/submission/tensor_table.h"

namespace hvd::runtime {
namespace {

using Interval = IntervalSet::Interval;

Interval interval_of(const Submission& submission, uint32_t index, const void* memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  return {begin, begin + submission.tensors[index].bytes, &submission, index};
}

// The root of a broadcast in place only reads.
bool is_written(const Submission& submission, const Submission::Tensor& tensor) {
  const bool stays = submission.request.op == HVD_BROADCAST && tensor.input == tensor.output;
  return tensor.bytes > 0 && tensor.output != nullptr && !(stays && tensor.reads);
}

bool is_read_alone(const Submission& submission, const Submission::Tensor& tensor) {
  return tensor.bytes > 0 && tensor.reads &&
         !(tensor.input == tensor.output && is_written(submission, tensor));
}

std::string text_of(const Submission& submission) {
  return operation_text(submission.request.op, submission.name->text);
}

std::string set_of(const Submission& submission) {
  return submission.process_set == 0 ? std::string(" of all ranks")
                                     : cat(" of process set ", submission.process_set);
}

// Why `mine` is refused: it overlaps `other`. Either is an "input" or an "output".
std::string refusal(const Interval& mine, std::string_view what, const Interval& other,
                    std::string_view of_other) {
  const Submission& own = *mine.owner;
  const std::string own_text = text_of(own);
  if (other.owner == mine.owner && other.tensor == mine.tensor) {
    return cat(own_text,
               ": its input and its output overlap in part; give the same address for both, or ",
               "separate memory to each");
  }
  if (other.owner == mine.owner) {
    return cat(own_text, ": the ", what, " of its tensor ", mine.tensor, " overlaps the ", of_other,
               " of its tensor ", other.tensor, "; give each tensor of a group separate memory");
  }
  const Submission& in_flight = *other.owner;
  const bool same_set = own.process_set == in_flight.process_set;
  return cat(own_text, same_set ? "" : set_of(own), ": ",
             own.tensors.size() > 1 ? cat("the ", what, " of its tensor ", mine.tensor)
                                    : cat("its ", what),
             " overlaps the ", of_other, " of ", text_of(in_flight),
             same_set ? "" : set_of(in_flight),
             ", which is in flight; wait for that first, or give each its own memory");
}

}  // namespace

std::string MemoryTable::add(const Submission& submission, uint32_t index) {
  const Submission::Tensor& tensor = submission.tensors[index];
  if (is_written(submission, tensor)) {
    const Interval output = interval_of(submission, index, tensor.output);
    if (const Interval* other = written_.find_overlap(output.begin, output.end)) {
      return refusal(output, "output", *other, "output");
    }
    if (const Interval* other = read_.find_overlap(output.begin, output.end)) {
      return refusal(output, "output", *other, "input");
    }
    written_.insert(output);
  }
  if (is_read_alone(submission, tensor)) {
    const Interval input = interval_of(submission, index, tensor.input);
    if (const Interval* other = written_.find_overlap(input.begin, input.end)) {
      return refusal(input, "input", *other, "output");
    }
    read_.insert(input);
  }
  return {};
}

std::string MemoryTable::insert(const Submission& submission) {
  for (uint32_t i = 0; i < submission.tensors.size(); ++i) {
    std::string reason = add(submission, i);
    if (reason.empty()) continue;
    remove(submission);
    return reason;
  }
  return {};
}

void MemoryTable::remove(const Submission& submission) {
  for (const Submission::Tensor& tensor : submission.tensors) {
    if (is_written(submission, tensor)) {
      written_.erase(reinterpret_cast<uintptr_t>(tensor.output), &submission);
    }
    if (is_read_alone(submission, tensor)) {
      read_.erase(reinterpret_cast<uintptr_t>(tensor.input), &submission);
    }
  }
}

}  // namespace hvd::runtime
