// What the executor keeps of a batch and of a process set's batches.
#pragma once

#include "runtime/executor.h"

namespace hvd::runtime {

// A batch, with all that it points to.
struct Executor::Run {
  hvd_batch batch{};
  hvd_tuning tuning{};               // what batch.tuning points to, where it points
  const OpenedPlugin* op = nullptr;  // that runs it
  std::vector<hvd_batch_tensor> tensors;
  std::vector<uint32_t> member;          // index of each tensor in its submission
  std::vector<Submission*> owner;        // of each tensor; null: this rank has joined
  std::vector<Submission*> submissions;  // each once
  std::vector<int64_t> rows;             // what rank_rows and from_rows point to
  // On a device alone, one of each tensor: what batch.ready_events and batch.made_outputs point to.
  std::vector<void*> ready, made;
  bool done = false;
  uint32_t traced = 0;                   // its number in the timeline
  Status status;

  void clear();
  bool has_work(size_t members) const;
  bool reduces_wholes() const;
};

class Executor::Lane {
 public:
  explicit Lane(std::shared_ptr<const SetMembers> of) : set(std::move(of)) {}

  const std::shared_ptr<const SetMembers> set;
  uint64_t next_sequence = 0;
  std::deque<std::unique_ptr<Run>> queue;
  std::deque<std::unique_ptr<Run>> running;
};

}  // namespace hvd::runtime
