#include "runtime/submission/tensor_table.h"

#include <algorithm>
#include <utility>

#include "base/operations/op_traits.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

MemoryUse use_of(const Submission& submission, uint32_t index, bool is_written) {
  const Submission::Tensor& tensor = submission.tensors[index];
  const auto begin = reinterpret_cast<uintptr_t>(is_written ? tensor.output : tensor.input);
  const size_t bytes = is_written ? tensor.output_bytes : tensor.bytes;
  return {begin, begin + bytes, is_written, index, &submission, nullptr};
}

std::string_view name_of(const MemoryUse& use) { return use.is_written ? "output" : "input"; }

// Returns whether the operation writes the tensor. The root of an in-place broadcast only reads.
bool is_written(const Submission& submission, const Submission::Tensor& tensor) {
  const bool stays = traits_of(submission.request.op).has_root && tensor.input == tensor.output;
  return tensor.output_bytes > 0 && tensor.output != nullptr && !(stays && tensor.reads);
}

// Returns whether the operation allows a tensor's input and output in the same memory.
bool may_be_in_place(const Submission& submission) {
  return !traits_of(submission.request.op).makes_outputs;
}

bool is_read_alone(const Submission& submission, const Submission::Tensor& tensor) {
  return tensor.bytes > 0 && tensor.reads &&
         !(tensor.input == tensor.output && is_written(submission, tensor) &&
           may_be_in_place(submission));
}

bool is_same(const MemoryUse& a, const MemoryUse& b) {
  return a.begin == b.begin && a.end == b.end && a.is_written == b.is_written;
}

std::string set_of(const Submission& submission) {
  return submission.process_set == 0 ? std::string(" of all ranks")
                                     : cat(" of process set ", submission.process_set);
}

// Returns the error for `mine`, which overlaps `other`.
std::string refusal(const MemoryUse& mine, const MemoryUse& other) {
  const Submission& own = *mine.owner;
  const std::string own_text = operation_text(own);
  if (other.owner == mine.owner && other.tensor == mine.tensor) {
    return cat(own_text, ": its input and its output overlap",
               may_be_in_place(own) ? " in part; give the same address for both, or " : "; give ",
               "separate memory to each");
  }
  if (other.owner == mine.owner) {
    return cat(own_text, ": the ", name_of(mine), " of its tensor ", mine.tensor, " overlaps the ",
               name_of(other), " of its tensor ", other.tensor,
               "; give each tensor of a group separate memory");
  }
  const Submission& in_flight = *other.owner;
  const bool same_set = own.process_set == in_flight.process_set;
  return cat(own_text, same_set ? "" : set_of(own), ": ",
             own.tensors.size() > 1 ? cat("the ", name_of(mine), " of its tensor ", mine.tensor)
                                    : cat("its ", name_of(mine)),
             " overlaps the ", name_of(other), " of ", operation_text(in_flight),
             same_set ? "" : set_of(in_flight),
             ", which is in flight; wait for that first, or give each its own memory");
}

}  // namespace

void IntervalSet::Chunk::find_max_end() {
  max_end = 0;
  for (size_t i = 0; i < count; ++i) max_end = std::max(max_end, intervals[i].end);
}

void IntervalSet::insert(const Interval& interval) {
  if (chunks_.empty()) {
    chunks_.push_back(spare_ ? std::move(spare_) : std::make_unique<Chunk>());
    firsts_.push_back(interval.begin);
  }
  // Find the last chunk that begins before the interval.
  size_t at = count_below(firsts_.data(), firsts_.size(), interval.begin);
  if (at > 0) --at;
  if (chunks_[at]->count == kChunk) {
    split(at);
    if (firsts_[at + 1] < interval.begin) ++at;
  }
  Chunk& chunk = *chunks_[at];
  const auto end = chunk.intervals.begin() + static_cast<ptrdiff_t>(chunk.count);
  const auto place =
      chunk.intervals.begin() +
      static_cast<ptrdiff_t>(count_below(chunk.intervals.data(), chunk.count, interval.begin));
  std::move_backward(place, end, end + 1);
  *place = interval;
  ++chunk.count;
  chunk.max_end = std::max(chunk.max_end, interval.end);
  firsts_[at] = chunk.intervals.front().begin;
}

void IntervalSet::split(size_t at) {
  auto upper = spare_ ? std::move(spare_) : std::make_unique<Chunk>();
  Chunk& lower = *chunks_[at];
  constexpr size_t kHalf = kChunk / 2;
  std::copy(lower.intervals.begin() + kHalf, lower.intervals.end(), upper->intervals.begin());
  lower.count = kHalf;
  upper->count = kChunk - kHalf;
  lower.find_max_end();
  upper->find_max_end();
  const auto next = static_cast<ptrdiff_t>(at) + 1;
  firsts_.insert(firsts_.begin() + next, upper->intervals.front().begin);
  chunks_.insert(chunks_.begin() + next, std::move(upper));
}

bool IntervalSet::erase(uintptr_t begin, const MemoryUse* use) {
  // The previous chunk may end with intervals that begin there.
  size_t at = count_below(firsts_.data(), firsts_.size(), begin);
  if (at > 0) --at;
  for (; at < chunks_.size() && firsts_[at] <= begin; ++at) {
    const Chunk& chunk = *chunks_[at];
    for (size_t i = count_below(chunk.intervals.data(), chunk.count, begin);
         i < chunk.count && chunk.intervals[i].begin == begin; ++i) {
      if (chunk.intervals[i].use != use) continue;
      erase_from(at, i);
      return true;
    }
  }
  return false;
}

void IntervalSet::erase_from(size_t at, size_t index) {
  Chunk& chunk = *chunks_[at];
  const uintptr_t end = chunk.intervals[index].end;
  std::move(chunk.intervals.begin() + static_cast<ptrdiff_t>(index) + 1,
            chunk.intervals.begin() + static_cast<ptrdiff_t>(chunk.count),
            chunk.intervals.begin() + static_cast<ptrdiff_t>(index));
  --chunk.count;
  if (chunk.count == 0) {
    chunk.max_end = 0;
    spare_ = std::move(chunks_[at]);
    chunks_.erase(chunks_.begin() + static_cast<ptrdiff_t>(at));
    firsts_.erase(firsts_.begin() + static_cast<ptrdiff_t>(at));
    return;
  }
  if (end == chunk.max_end) chunk.find_max_end();
  firsts_[at] = chunk.intervals.front().begin;
}

std::string MemoryTable::insert(Submission& submission, bool* is_in_flight) {
  for (uint32_t i = 0; i < submission.tensors.size(); ++i) {
    MemoryUse refused;
    const MemoryUse* in_use = add(submission, i, &refused);
    if (in_use == nullptr) continue;
    std::string reason = refusal(refused, *in_use);
    if (is_in_flight != nullptr) *is_in_flight = in_use->owner != &submission;
    remove(submission);
    return reason;
  }
  return {};
}

// Adds a tensor's uses. Returns the use in flight that forbids one, and sets *refused to the forbidden use; or nullptr.
const MemoryUse* MemoryTable::add(Submission& submission, uint32_t index, MemoryUse* refused) {
  Submission::Tensor& tensor = submission.tensors[index];
  if (is_written(submission, tensor)) {
    *refused = use_of(submission, index, true);
    if (const MemoryUse* in_use = enter(*refused, &tensor.output_use)) return in_use;
  }
  if (is_read_alone(submission, tensor)) {
    *refused = use_of(submission, index, false);
    if (const MemoryUse* in_use = enter(*refused, &tensor.input_use)) return in_use;
  }
  return nullptr;
}

// Adds a use. Returns a use in flight that forbids it, or nullptr.
const MemoryUse* MemoryTable::enter(const MemoryUse& wanted, MemoryUse** entered) {
  MemoryUse* use = last_->next;
  if (use == nullptr || use->owner != nullptr || !is_same(*use, wanted)) {
    const MemoryUse* in_use = nullptr;
    use = search(wanted, &in_use);
    if (in_use != nullptr) return in_use;
    last_->next = use;
  }
  use->owner = wanted.owner;
  use->tensor = wanted.tensor;
  *entered = last_ = use;
  most_in_flight_ = std::max(most_in_flight_, ++in_flight_);
  return nullptr;
}

// Finds the use of the same memory in the table, or makes one. Removes overlapping uses without a submission.
MemoryUse* MemoryTable::search(const MemoryUse& wanted, const MemoryUse** in_use) {
  MemoryUse* known = nullptr;
  stale_.clear();
  intervals_.visit_overlaps(wanted.begin, wanted.end, [&](const IntervalSet::Interval& interval) {
    MemoryUse* use = interval.use;
    if (use->owner != nullptr) {
      if (!use->is_written && !wanted.is_written) return true;
      *in_use = use;
      return false;
    }
    if (known == nullptr && is_same(*use, wanted)) {
      known = use;
    } else {
      stale_.push_back(use);
    }
    return true;
  });
  if (*in_use != nullptr) return nullptr;
  for (MemoryUse* use : stale_) forget(use);
  if (known != nullptr) return known;
  // Remove unused entries, since programs that use new memory in each step must not fill the table.
  if (uses_.size() - free_.size() > 3 * most_in_flight_ + 64) forget_unused();
  MemoryUse* use = take_free();
  use->begin = wanted.begin;
  use->end = wanted.end;
  use->is_written = wanted.is_written;
  intervals_.insert({use->begin, use->end, use});
  return use;
}

MemoryUse* MemoryTable::take_free() {
  if (free_.empty()) return &uses_.emplace_back();
  MemoryUse* use = free_.back();
  free_.pop_back();
  return use;
}

// Removes a use. `next` of other uses may still point to it: enter() compares the memory before it uses `next`.
void MemoryTable::forget(MemoryUse* use) {
  intervals_.erase(use->begin, use);
  use->begin = use->end = 0;
  free_.push_back(use);
}

void MemoryTable::forget_unused() {
  for (MemoryUse& use : uses_) {
    if (use.owner == nullptr && use.begin != use.end) forget(&use);
  }
}

void MemoryTable::remove(Submission& submission) {
  for (Submission::Tensor& tensor : submission.tensors) {
    for (MemoryUse** use : {&tensor.output_use, &tensor.input_use}) {
      if (*use == nullptr) continue;
      (*use)->owner = nullptr;
      *use = nullptr;
      --in_flight_;
    }
  }
}

Status TensorTable::insert(uint32_t set, std::string_view name, bool shared,
                           Submission* submission) {
  MutexLock lock(mutex_);
  Name* known = find_next(set, name);
  if (known == nullptr) {
    auto entry = std::make_unique<Name>(set, std::string(name));
    count(entry.get(), submission);
    const Key key{set, entry->text};
    names_.emplace(key, std::move(entry));
    return {};
  }
  if (known->in_flight > known->refused && !shared) {
    return already_exists(cat("'", printable(name),
                              "' has the same name as another tensor that "
                              "is in flight; wait for the first, or give each its own name"));
  }
  count(known, submission);
  return {};
}

Status TensorTable::insert_memory(Submission* submission) {
  MutexLock lock(mutex_);
  bool is_in_flight = false;
  std::string refusal = memory_.insert(*submission, &is_in_flight);
  if (refusal.empty()) return {};
  return is_in_flight ? already_exists(std::move(refusal)) : invalid_argument(std::move(refusal));
}

void TensorTable::count(Name* name, Submission* submission) {
  submission->name = name;
  ++name->in_flight;
  std::string& refusal = submission->request.refusal;
  if (refusal.empty()) refusal = memory_.insert(*submission);
  if (!refusal.empty()) ++name->refused;
}

void TensorTable::remove(std::span<Submission* const> submissions) {
  MutexLock lock(mutex_);
  for (Submission* submission : submissions) {
    Name* name = submission->name;
    if (submission->has_left) continue;
    if (name == nullptr) {
      memory_.remove(*submission);
      continue;
    }
    if (submission->request.refusal.empty()) {
      memory_.remove(*submission);
    } else {
      --name->refused;
    }
    if (--name->in_flight == 0 && !name->kept) erase(*name);
  }
}

Name* TensorTable::find(uint32_t set, std::string_view name) {
  MutexLock lock(mutex_);
  const auto found = names_.find(Key{set, name});
  return found == names_.end() ? nullptr : found->second.get();
}

void TensorTable::keep(Name* name, bool kept) {
  MutexLock lock(mutex_);
  if (std::exchange(name->kept, kept) != kept) {
    if (kept) {
      order_.push_back(name);
      name->place = order_.size() - 1;
    } else {
      put_at(order_.back(), name->place);
      order_.pop_back();
    }
  }
  if (!kept && name->in_flight == 0) erase(*name);
}

void TensorTable::put_at(Name* name, size_t place) {
  order_[place] = name;
  name->place = place;
}

Name* TensorTable::find_next(uint32_t set, std::string_view name) {
  if (next_ >= order_.size()) next_ = 0;
  if (!order_.empty() && order_[next_]->set == set && order_[next_]->text == name) {
    return order_[next_++];
  }
  const auto found = names_.find(Key{set, name});
  if (found == names_.end()) return nullptr;
  Name* known = found->second.get();
  if (known->kept) {
    put_at(order_[next_], known->place);
    put_at(known, next_++);
  }
  return known;
}

}  // namespace hvd::runtime
