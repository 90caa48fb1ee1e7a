// Formats a finding of HangRule as a sentence for the user with the hanging ranks and their positions. Pure. Escapes
// texts from agents.
#pragma once

#include <string>
#include <vector>

#include "launcher/observe/rules/hang_rule.h"

namespace hvd::launcher {

// A rank that has ended.
struct EndedRank {
  int rank = 0;
  std::string how;  // "exit code 0"
};

// Returns a sentence, for example "no rank has moved for 120 s: ranks 0-6 on a wait in torch.distributed (gloo):
// all_reduce, train.py:88; rank 7 on b is in load_shard, loader.py:30". `host_of`: indexed by rank.
std::string hang_sentence(const HangRule::Finding& finding, const std::vector<EndedRank>& ended,
                          const std::vector<std::string>& host_of);
// Returns whether the stack of a rank shows that it waits for other ranks.
bool is_certain(const HangRule::Finding& finding);
// Returns why the finding has ranks without Python stacks, and the remedy; empty if all ranks have stacks.
std::string missing_stacks(const HangRule::Finding& finding,
                           const std::vector<std::string>& host_of);

}  // namespace hvd::launcher
