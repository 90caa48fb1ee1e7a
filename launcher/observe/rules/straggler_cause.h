// Names what of a host explains that a rank is late: a wait for processors, a CPU quota, a hypervisor, storage or the
// network. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/observe/rules/straggler_rule.h"
#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

// Counts of disturbances of a rank and of its host.
struct RankPressure {
  RankMetrics rank{};
  HostPressure host{};
};
// The counts that agents have read of the ranks while a rank was suspected, by rank.
class PressureRecord {
 public:
  using Pressures = std::map<int, RankPressure>;
  void clear() { *this = {}; }
  void take(const Pressures& now, double at_seconds);
  // Two looks are needed.
  bool is_whole() const { return looks_ > 1; }

  struct Growth {
    double seconds = 0;  // between the first look and the last
    RankPressure first{}, last{};
    int looks = 0, blocked = 0;
  };
  // By rank.
  std::map<int, Growth> growth() const;

 private:
  Pressures first_, last_;
  std::map<int, int> blocked_;
  int looks_ = 0;
  double began_ = 0, ended_ = 0;
};

struct StragglerCause {
  std::string text = "the program itself";
  bool is_of_host = false;  // another host would not have it
};
StragglerCause cause_of(const StragglerFinding& finding,
                        const std::map<int, PressureRecord::Growth>& ranks);

}  // namespace hvd::launcher
