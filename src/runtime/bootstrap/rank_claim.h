// Claims the rank that a launcher's variables give to this process. The rank's child processes inherit these
// variables: a second process with them would join the job as the same rank, or form a job with children of other
// ranks. The claim is a listening abstract Unix socket, which the kernel closes when the process ends. hvd_init takes
// the claim before it finds the other ranks, and hvd_shutdown drops the claim.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/fork_guard.h"
#include "base/result.h"
#include "rendezvous/wire/world_report.h"

namespace hvd::runtime {

// Maximum number of ancestors that a search in /proc visits.
constexpr int kMostLevels = 64;

// Returns whether `pid` is the parent of this process, or an ancestor of the parent.
bool is_ancestor(int64_t pid);

// A rank that variables name.
struct NamedRank {
  std::string words;  // "rank 3"
  std::string key;    // differs between the ranks of all jobs on this host
};
using Variables = std::function<std::optional<std::string>(const char* name)>;
// Returns nullopt if the variables do not name a rank: in a single-process job, or if a server assigns ranks.
std::optional<NamedRank> named_rank(const Variables& variables);

class RankClaim {
 public:
  // Claims the rank that this process's environment names, if any. An error names the process that
  // holds the claim. If the kernel allows no claim, returns an empty claim without an error.
  static Result<RankClaim> take();

 private:
  GuardedFd listener_;
};

// Reports this process's rank and the size of its world to the agent that started the process, if any.
// Finds the agent among this process's ancestors, not in the environment, which a program may have changed.
// Waits a limited time for a reply. Logs nothing without an agent or a reply.
void notify_agent(const rendezvous::WorldReport& report);

}  // namespace hvd::runtime
