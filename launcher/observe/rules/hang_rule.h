// Decides whether a job hangs, or whether ranks have waited long for other ranks. Two inputs come from the agents.
// Signs (RankSigns) are counters of the kernel, and cheap to read. Places (RankPlace) are stacks, and need py-spy.
// HangWatch passes the signs at each look, and the places when look() requests them.
//
//   look(signs)    A rank moves when a count of its processes grows by more than idle processes cause: main thread,
//                  other threads, bytes, sockets, its own output. `quiet_since_`: when a rank last moved.
//   judge(places)  HangWatch calls this after half a limit without a move. The next sample follows after a quarter of
//                  the limit if a rank waits in a collective, no rank's main thread works and no rank is excused;
//                  otherwise after a pause that doubles, up to ten limits.
//   kHang          after a full limit and three equal samples in which a rank waits in a collective.
//   kStop          after two limits, if no long operation of all ranks explains the wait: the ranks are not all in one
//                  operation, or a rank has ended. Also, no rank may be waiting for its own GPU.
//   kWait          after ten limits in which a rank waits in a collective while others move. Once for each wait.
//
// Invariant: no finding includes time in which a rank was not observed. All times restart after a late look(), after
// forget(), and when a rank is new, hidden or excused. HangWatch owns this object. Pure: each call carries its time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

class HangRule {
 public:
  using Time = Clock::time_point;
  // Indexed by rank.
  using Signs = std::map<int, RankSigns>;
  using Places = std::map<int, RankPlace>;

  struct Finding {
    enum class Kind {
      kHang,  // no rank moves
      kWait,  // some ranks wait for other ranks, which move
      kStop   // the hang has lasted for two limits, and cannot be a long operation of all ranks
    };
    Kind kind = Kind::kHang;
    double seconds = 0;        // time without a move of any rank; kWait: of the waiting ranks
    std::vector<int> waiting;  // kWait: the ranks that wait for other ranks
    Places places;
  };

  // `limit`: the seconds without a move after which the job may hang.
  HangRule(double limit, bool may_stop) : limit_(limit), may_stop_(may_stop) {}

  // Returns the pause between two looks, in seconds.
  double interval() const;
  // Call when the rank has written output.
  void moved(int rank) { has_written_[rank] = true; }
  // Ignores the time until now. Call if a host or a rank was suspended, or was invisible.
  void forget();
  // Takes the signs of all running ranks. Returns whether the rule also needs the ranks' places.
  bool look(const Signs& signs, Time now);
  // Call after look() has requested the places. `places`: of all running ranks. `has_ended`: a rank has ended.
  std::optional<Finding> judge(Places places, bool has_ended, Time now);

 private:
  struct Rank {
    RankSigns last;
    Time since{};             // when the rank last moved
    uint64_t main_since = 0;  // RankSigns::main_microseconds at that time
  };

  void update(const Signs& signs, Time now, double seconds);
  Rank next(const RankSigns& signs, Time now, double seconds);
  static bool is_quiet(const RankSigns& before, const RankSigns& now, double seconds);
  void begin_again(Time since);
  bool is_hang(const Places& places) const;
  bool main_is_busy(const Rank& rank) const;
  std::optional<Finding> judge_hang(Places places, bool has_ended, Time now);
  std::optional<Finding> judge_wait(Places places, Time now);
  void postpone(Time now);

  const double limit_;
  const bool may_stop_;
  std::map<int, Rank> ranks_;
  std::map<int, bool> has_written_;
  Time looked_{};
  Time quiet_since_{};  // time of the last move of any rank
  Places last_;         // places in the last samples, which were equal
  int samples_ = 0;     // number of equal samples without a move between them
  Time next_sample_{};
  double pause_ = 0;  // pause before the next sample, in seconds
  bool is_reported_ = false;
  bool is_stopped_ = false;
  Time next_wait_sample_{};
  // By rank: the value of Rank::since for the rank's reported wait.
  std::map<int, Time> wait_reported_;
};

// A rank that ended before the hang, for hang_sentence().
struct EndedRank {
  int rank = 0;
  std::string how;  // "exit code 0"
};

// Returns a sentence, for example "no rank has moved for 120 s: ranks 0-6 on a wait in torch.distributed (gloo):
// all_reduce, train.py:88; rank 7 on b is in load_shard, loader.py:30". `host_of`: indexed by rank.
// Escapes the agents' texts for a terminal.
std::string hang_sentence(const HangRule::Finding& finding, const std::vector<EndedRank>& ended,
                          const std::vector<std::string>& host_of);
// Returns whether a stack shows that a rank waits for other ranks.
bool is_certain(const HangRule::Finding& finding);
// Returns why the finding has ranks without Python stacks, and the remedy; empty if all ranks have stacks.
// `host_of`: indexed by rank. Escapes the agents' texts for a terminal.
std::string missing_stacks(const HangRule::Finding& finding,
                           const std::vector<std::string>& host_of);

}  // namespace hvd::launcher
