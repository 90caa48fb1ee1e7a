// The process sets that this rank is a member of, in the order of their serial numbers: how they open,
// are found and go. Keeps messages for sets that this rank has not added yet. Never plans and never
// ends a set's work: the runtime core does. Belongs to the thread that makes progress.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "runtime/core/message_links.h"
#include "runtime/core/process_set.h"
#include "runtime/execution/batch_executor.h"
#include "runtime/submission/tensor_table.h"

namespace hvd::runtime {

class ProcessSetRegistry {
 public:
  // What it uses, which outlives it.
  struct Parts {
    SetTable* table;
    TensorTable* names;
    BatchExecutor* executor;
    const MessageLinks* links;
    CompletionSink* sink;
    const FusionOptions* fusion;
  };
  ProcessSetRegistry(const Parts& parts, uint32_t cache_capacity)
      : parts_(parts), cache_capacity_(cache_capacity) {}

  // Before all else: opens the set of all ranks.
  Status open_all();

  // Every rank calls these with the same, in the same order. They complete the submission, but for a
  // set of this rank that is removed: its submission completes when the set is dropped.
  Status add(const Request& request, Submission* submission);
  // The set whose work the caller has to end; nullptr: none.
  ProcessSet* remove(int32_t id, Submission* submission);
  // Closes removed sets that have ended and are idle. True when any was.
  Result<bool> drop_removed();

  // The set of all ranks.
  ProcessSet* all() const { return all_; }
  // nullptr: there is no such set, or this rank is no member.
  ProcessSet* find(uint32_t serial) const { return serial == 0 ? all_ : find_other(serial); }
  // A plan of one may add another behind it: iterate by index.
  size_t size() const { return sets_.size(); }
  ProcessSet* at(size_t index) const { return sets_[index].get(); }
  bool all_ended() const;
  // Of any process set that exists.
  bool is_member(int32_t process_set, int32_t rank) const;

  // A message for a set that this rank has not added yet: its peers were faster.
  struct Early {
    uint32_t set;
    int32_t from;
    Bytes message;
  };
  // Whether this rank has not added the set yet.
  bool is_ahead(uint32_t serial) const { return serial > last_serial_; }
  Status keep_early(uint32_t serial, int32_t from, ByteView message);
  void keep_early(Early&& message);
  bool has_early() const { return !early_.empty(); }
  std::vector<Early> take_early();

 private:
  Status open(std::shared_ptr<const SetMembers> members);
  Status add_set(std::vector<int32_t> ranks, Submission* submission);
  ProcessSet* find_other(uint32_t serial) const;

  const Parts parts_;
  const uint32_t cache_capacity_;
  std::vector<std::unique_ptr<ProcessSet>> sets_;
  ProcessSet* all_ = nullptr;  // the first of them
  uint32_t last_serial_ = 0;   // of the sets that were added
  std::vector<Early> early_;
  size_t early_bytes_ = 0;
  bool some_removed_ = false;
};

}  // namespace hvd::runtime
