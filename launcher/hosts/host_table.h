// The hosts and ranks of a launch. An elastic job only adds hosts: references to entries stay valid, and a host that
// returns gets a new entry. JobLaunch owns the table. Lives on the launch's loop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "launcher/hosts/host_run.h"
#include "launcher/hosts/rank_run.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

class HostTable {
 public:
  explicit HostTable(const SlotPlan& plan);
  HostTable(const HostTable&) = delete;

  // Adds a host with its ranks, which get the next numbers of the table. The ranks are not members yet. Calls the
  // callback of on_added().
  HostRun& add(Host host, const std::vector<Slot>& slots);
  void on_added(std::function<void(HostRun&)> callback) { added_ = std::move(callback); }

  std::deque<HostRun>& hosts() { return hosts_; }
  const std::deque<HostRun>& hosts() const { return hosts_; }
  std::deque<RankRun>& ranks() { return ranks_; }
  const std::deque<RankRun>& ranks() const { return ranks_; }
  HostRun& host(int number) { return hosts_[static_cast<size_t>(number)]; }
  const HostRun& host(int number) const { return hosts_[static_cast<size_t>(number)]; }
  RankRun& rank(int number) { return ranks_[static_cast<size_t>(number)]; }
  const RankRun& rank(int number) const { return ranks_[static_cast<size_t>(number)]; }
  int size() const { return static_cast<int>(ranks_.size()); }  // ranks
  // `number` may be any number, for example one that another program sent.
  bool has_rank(int64_t number) const { return number >= 0 && number < size(); }

  // In an elastic job, the entries of ranks() are processes, and only the members of a generation are ranks. `numbers`:
  // the members by rank; empty: no generation now, and `generation` is the last one of an earlier launch, or -1.
  void set_members(int32_t generation, std::span<const int> numbers);
  // Returns the current generation; -1: none yet.
  int32_t generation() const { return generation_; }
  bool has_members() const { return !members_.empty(); }
  // Returns the current rank of a process, or -1. `number` may be any number, as in has_rank().
  int rank_of(int64_t number) const {
    return has_rank(number) ? rank(static_cast<int>(number)).rank() : -1;
  }
  // Returns the members by rank of the job. In an elastic job, includes members that have ended since.
  std::span<RankRun* const> members() const { return members_; }

  // Returns the host name of each rank of the table.
  std::vector<std::string> host_names() const;
  // Returns whether every host is done or lost.
  bool is_over() const;
  // Returns the number of ranks that have not ended, on hosts that are neither done nor lost.
  int living_ranks() const;

 private:
  std::deque<HostRun> hosts_;
  std::deque<RankRun> ranks_;
  int32_t generation_ = -1;
  std::vector<RankRun*> members_;
  std::function<void(HostRun&)> added_;
};

}  // namespace hvd::launcher
