// Tracks which ranks wait in hvd.init(), and for which ranks, from their reports (rendezvous::WorldReport) and states.
// Only for jobs of constant size. JobLaunch owns one object for hvd.init() and one for MPI_Init. Pure: each event
// carries its time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/hosts/host_table.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

class InitWaits {
 public:
  using Time = Clock::time_point;
  // Ranks that start together and wait in hvd.init(), because some of them are missing.
  struct Wait {
    std::vector<int> present;  // ranks in hvd.init()
    std::vector<int> missing;  // ranks that have not called hvd.init()
    Time since{};              // when the first rank called hvd.init()
  };

  // `hosts` must outlive this object.
  explicit InitWaits(const HostTable& hosts) : hosts_(hosts) {}

  void joined(const Joined& joined, Time now);

  // Returns the longest wait for ranks that still run.
  std::optional<Wait> longest() const { return find(false); }
  // Returns the longest wait that cannot succeed, because ranks have ended: its `missing` has only these ranks.
  std::optional<Wait> hopeless() const { return find(true); }
  // Returns the wait in which this rank waits, if any.
  std::optional<Wait> of(int rank) const;
  // Returns whether any rank has called hvd.init().
  bool has_begun() const { return !starts_.empty(); }

 private:
  struct Start {
    std::vector<bool> members, present;  // indexed by rank
    Time since{};
    bool has_met = false;
  };
  std::optional<Wait> find(bool is_hopeless) const;
  Wait wait_of(const Start& start, bool is_hopeless) const;

  const HostTable& hosts_;
  std::map<std::string, Start> starts_;  // key: name and ranks of the start
};

// Returns "rank 3 on b has not called hvd.init() for 60 s: running (python3 train.py), 98 % of a core; ranks 0-2 wait
// for it". `activity`: the activity of the first missing rank, or empty.
std::string wait_sentence(const InitWaits::Wait& wait, const std::vector<std::string>& host_of,
                          int64_t seconds, const std::string& activity);

// Returns "ranks started 4; importing 1 (rank 2 on b); in hvd.init 3; 12 s". `wait`: the wait for running ranks; empty
// if no rank waits, for example because the program does not use Horovod.
std::string start_line(size_t ranks, const std::optional<InitWaits::Wait>& wait,
                       const std::vector<std::string>& host_of, double seconds, size_t columns);

}  // namespace hvd::launcher
