// Claims the rank that a launcher's variables give to this process, since the processes that a rank starts
// inherit them: a second process with the same variables would join the job as the same rank, or join a job
// of such children. The claim is an abstract Unix socket that listens, which the kernel ends with the
// process. hvd_init takes it before it finds the other ranks, and hvd_shutdown drops it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/fork_guard.h"
#include "base/result.h"

namespace hvd::runtime {

// A rank as the variables name it. Pure but for `variables`.
struct NamedRank {
  std::string words;  // "rank 3"
  std::string key;    // differs between the ranks of all jobs of this host
};
using Variables = std::function<std::optional<std::string>(const char* name)>;
// Nothing for a process whose variables name no rank: a world of one, or a place that a server assigns.
std::optional<NamedRank> named_rank(const Variables& variables);

class RankClaim {
 public:
  // Claims the rank that this process's environment names, if any. An error names the process that has it.
  // Where the kernel allows no claim, there is none, and no error.
  static Result<RankClaim> take();

 private:
  GuardedFd listener_;
};

}  // namespace hvd::runtime
