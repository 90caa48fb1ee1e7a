// Names the disturbance on a host that explains a late rank: a wait for processors, a CPU quota, a hypervisor, storage
// or the network. Finds the line at which a late rank was most often, and formats the sentence. Pure; escapes texts
// from agents.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/observe/rules/straggler_rule.h"
#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

// Counters of disturbances of a rank and of its host.
struct RankPressure {
  RankMetrics rank{};
  HostPressure host{};
};
// The growth of the ranks' counters, read by the agents while a rank was suspected.
class PressureRecord {
 public:
  using Pressures = std::map<int, RankPressure>;
  void clear() { *this = {}; }
  void take(const Pressures& now, double at_seconds);
  // Returns whether the counters were read at least twice: their growth is then known.
  bool is_whole() const { return looks_ > 1; }

  struct Growth {
    double seconds = 0;  // time between the first and the last look
    RankPressure first{}, last{};
    int looks = 0, blocked = 0;
  };
  // Indexed by rank.
  std::map<int, Growth> growth() const;

 private:
  Pressures first_, last_;
  std::map<int, int> blocked_;
  int looks_ = 0;
  double began_ = 0, ended_ = 0;
};

struct StragglerCause {
  std::string text = "the program itself";
  bool is_of_host = false;  // the rank would not be late on another host
};
StragglerCause cause_of(const StragglerFinding& finding,
                        const std::map<int, PressureRecord::Growth>& ranks);

// The position of a late rank while other ranks waited.
struct LateLine {
  std::string line;  // "read_shard, loader.py:30"; empty: unknown
  int samples = 0;   // number of samples at that line
  int of = 0;
};

// Returns "rank 3 on b is 7.4 ms late in 47 of 50 steps, 15 % of a step; cause: the program itself".
// `cause` may be empty. `host_of` is indexed by rank.
std::string straggler_sentence(const StragglerFinding& finding, const std::string& cause,
                               const LateLine& line, const std::vector<std::string>& host_of);

// Counts the source lines at which a late rank was found while other ranks waited for it.
class LatePlaces {
 public:
  void clear() { ranks_.clear(); }
  void take(int rank, const RankPlace& place);
  // Returns the line at which one of the ranks was found most often; empty if no line dominates. Ignores samples of
  // ranks that wait for other ranks.
  LateLine line_of(const std::vector<int>& ranks) const;

 private:
  struct Rank {
    int samples = 0;
    std::map<std::string, int> lines;
  };
  std::map<int, Rank> ranks_;
};

}  // namespace hvd::launcher
