#include "runtime/submission/set_table.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/text.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {
namespace {

std::shared_ptr<const SetMembers> everybody(int32_t rank, int32_t size) {
  auto all = std::make_shared<SetMembers>();
  all->ranks.resize(static_cast<size_t>(size));
  std::iota(all->ranks.begin(), all->ranks.end(), 0);
  all->index = rank;
  return all;
}

}  // namespace

int32_t SetMembers::index_of(int32_t rank) const {
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end() || *found != rank) return -1;
  return static_cast<int32_t>(found - ranks.begin());
}

SetTable::SetTable(int32_t rank, int32_t size) : rank_(rank), all_(everybody(rank, size)) {
  sets_.emplace(0, all_);
}

std::shared_ptr<const SetMembers> SetTable::find(int32_t id) const {
  MutexLock lock(mutex_);
  const auto found = sets_.find(id);
  return found == sets_.end() ? nullptr : found->second;
}

std::vector<int32_t> SetTable::ids() const {
  MutexLock lock(mutex_);
  std::vector<int32_t> ids;
  for (const auto& [id, set] : sets_) ids.push_back(id);
  return ids;
}

bool SetTable::was_given(int32_t id) const {
  MutexLock lock(mutex_);
  return id >= 0 && id < next_id_;
}

bool SetTable::was_removed(uint32_t serial) const {
  if (serial == 0) return false;
  MutexLock lock(mutex_);
  return serial < next_serial_ && std::ranges::none_of(sets_, [serial](const auto& entry) {
           return entry.second->serial == serial;
         });
}

Result<std::vector<int32_t>> SetTable::check(std::vector<int32_t> ranks) const {
  std::sort(ranks.begin(), ranks.end());
  if (ranks.empty()) return invalid_argument("a process set needs at least one rank");
  const auto twice = std::adjacent_find(ranks.begin(), ranks.end());
  const std::string set = cat("process set ", list_text(std::span<const int32_t>(ranks)), ": ");
  if (twice != ranks.end()) return invalid_argument(cat(set, "duplicate rank: ", *twice));
  for (const int32_t rank : ranks) {
    if (rank < 0 || rank >= all_->size()) {
      return invalid_argument(
          cat(set, "invalid rank: ", rank, "; the job has ranks 0 to ", all_->size() - 1));
    }
  }
  return ranks;
}

Result<std::shared_ptr<const SetMembers>> SetTable::add(std::vector<int32_t> ranks,
                                                        std::string_view name) {
  HVD_ASSIGN_OR_RETURN(ranks, check(std::move(ranks)));
  MutexLock lock(mutex_);
  for (const auto& [id, set] : sets_) {
    if (set->ranks == ranks && set->name == name) {
      return already_exists(cat("process set ", id, " has the same ranks ",
                                list_text(std::span<const int32_t>(ranks)),
                                " already; use that one"));
    }
  }
  auto set = std::make_shared<SetMembers>();
  set->serial = next_serial_++;
  if (free_.empty() || !name.empty()) {
    set->id = next_id_++;
  } else {
    set->id = free_.front();
    free_.pop_front();
  }
  set->name = name;
  set->ranks = std::move(ranks);
  set->index = set->index_of(rank_);
  sets_.emplace(set->id, set);
  return std::shared_ptr<const SetMembers>(std::move(set));
}

void SetTable::remove(int32_t id) {
  MutexLock lock(mutex_);
  const auto found = sets_.find(id);
  if (found == sets_.end()) return;
  // Reuse only ids of unnamed sets: programs wait for the removal of these sets, but plugins may still use a removed
  // named set.
  if (found->second->name.empty()) free_.push_back(id);
  sets_.erase(found);
}

}  // namespace hvd::runtime
