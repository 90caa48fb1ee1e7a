// The process sets of the job, equal on every rank: 0 is the set of all ranks. Reuses the ids of
// removed unnamed sets, the oldest first. Runtime owns the table. Any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"

namespace hvd::runtime {

// The members of a set. Immutable and shared; may outlive the set.
struct SetMembers {
  int32_t id = 0;
  uint32_t serial = 0;         // number of earlier sets; never reused
  std::string name;            // empty, or distinguishes the set from other sets of the same ranks
  std::vector<int32_t> ranks;  // ascending
  int32_t index = -1;          // this rank's index in `ranks`; -1: not a member

  int32_t size() const { return static_cast<int32_t>(ranks.size()); }
  // Returns the index of another rank among the members; -1: not a member.
  int32_t index_of(int32_t rank) const;
};

class SetTable {
 public:
  // `rank`: this rank. `size`: number of ranks.
  SetTable(int32_t rank, int32_t size);

  const SetMembers& all() const { return *all_; }
  // Returns nullptr if the set does not exist.
  std::shared_ptr<const SetMembers> find(int32_t id) const;
  std::vector<int32_t> ids() const;
  // Returns whether a set has or had this id.
  bool was_given(int32_t id) const;
  // Returns whether the set with this serial number was added and removed.
  bool was_removed(uint32_t serial) const;

  // Returns the sorted ranks, or an error about them.
  Result<std::vector<int32_t>> check(std::vector<int32_t> ranks) const;
  // Adds the job's next set; all ranks must make the same call. kAlreadyExists: a set with these ranks and name exists.
  Result<std::shared_ptr<const SetMembers>> add(std::vector<int32_t> ranks,
                                                std::string_view name = {});
  void remove(int32_t id);

 private:
  const int32_t rank_;
  const std::shared_ptr<const SetMembers> all_;
  mutable Mutex mutex_;
  std::map<int32_t, std::shared_ptr<const SetMembers>> sets_ HVD_GUARDED_BY(mutex_);  // by id
  std::deque<int32_t> free_ HVD_GUARDED_BY(mutex_);
  int32_t next_id_ HVD_GUARDED_BY(mutex_) = 1;
  uint32_t next_serial_ HVD_GUARDED_BY(mutex_) = 1;
};

}  // namespace hvd::runtime
