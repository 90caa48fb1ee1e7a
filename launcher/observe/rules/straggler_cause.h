// Names the property of a host that explains a late rank: a wait for processors, a CPU quota, a hypervisor, storage or
// the network. Pure.
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
  // Returns whether the counters were read at least twice, which a growth needs.
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
  bool is_of_host = false;  // a move to another host would remove the cause
};
StragglerCause cause_of(const StragglerFinding& finding,
                        const std::map<int, PressureRecord::Growth>& ranks);

}  // namespace hvd::launcher
