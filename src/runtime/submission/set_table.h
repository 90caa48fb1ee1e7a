// The process sets of the job, the same on every rank: 0 is all ranks. It reuses the ids of removed
// sets without a name, the oldest first. Runtime owns it. Any thread.
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

// The members of a set. Values; its users share them, also after the set was removed.
struct SetMembers {
  int32_t id = 0;
  uint32_t serial = 0;         // the number of sets before this one; never reused
  std::string name;            // empty, or what tells it from other sets of the same ranks
  std::vector<int32_t> ranks;  // ascending
  int32_t index = -1;          // this rank's index in `ranks`; -1: it is not a member

  int32_t size() const { return static_cast<int32_t>(ranks.size()); }
  // Index of another rank among the members; -1: the rank is no member.
  int32_t index_of(int32_t rank) const;
};

class SetTable {
 public:
  // This rank, and how many there are.
  SetTable(int32_t rank, int32_t size);

  const SetMembers& all() const { return *all_; }
  // nullptr when there is none.
  std::shared_ptr<const SetMembers> find(int32_t id) const;
  std::vector<int32_t> ids() const;
  // Whether a set has this id or has had it.
  bool was_given(int32_t id) const;
  // Whether the set with this serial number was added and removed.
  bool was_removed(uint32_t serial) const;

  // The ranks in order, or what is wrong with them.
  Result<std::vector<int32_t>> check(std::vector<int32_t> ranks) const;
  // The next set of the job; all ranks call this alike. kAlreadyExists: another set has ranks and name.
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
