// Says as one sentence who is late, and why. Pure; escapes what agents say.
#pragma once

#include <string>
#include <vector>

#include "launcher/observe/rules/straggler_rule.h"

namespace hvd::launcher {

// Where a late rank was while others waited.
struct LateLine {
  std::string line;  // "read_shard, loader.py:30"; empty: unknown
  int samples = 0;   // that were there
  int of = 0;
};

// "rank 3 on b is 7.4 ms late in 47 of 50 steps, 15 % of a step; cause: the program itself". `cause`: may be empty.
// `host_of`: by rank.
std::string straggler_sentence(const StragglerFinding& finding, const std::string& cause,
                               const LateLine& line, const std::vector<std::string>& host_of);

}  // namespace hvd::launcher
