// Counts the source lines at which a late rank was found while other ranks waited for it. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/observe/rules/straggler_report.h"
#include "launcher/protocol/host_sample.h"

namespace hvd::launcher {

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
