// Formats one sentence with the late ranks and the cause. Pure; escapes texts from agents.
#pragma once

#include <string>
#include <vector>

#include "launcher/observe/rules/straggler_rule.h"

namespace hvd::launcher {

// The position of a late rank while other ranks waited.
struct LateLine {
  std::string line;  // "read_shard, loader.py:30"; empty: unknown
  int samples = 0;   // number of samples at that line
  int of = 0;
};

// Returns "rank 3 on b is 7.4 ms late in 47 of 50 steps, 15 % of a step; cause: the program itself".
// `cause` may be empty.
// `host_of` is indexed by rank.
std::string straggler_sentence(const StragglerFinding& finding, const std::string& cause,
                               const LateLine& line, const std::vector<std::string>& host_of);

}  // namespace hvd::launcher
