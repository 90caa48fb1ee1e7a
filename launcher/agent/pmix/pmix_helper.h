// The agent's connection to its PMIx helper (launcher/pmix), an executable embedded in the agent's.
// Starts the helper, and passes messages to it. When the helper cannot start or the host has no PMIx,
// the job runs without PMIx. For a program that certainly uses no MPI, a job on one host starts no helper; on
// several hosts the helper waits in standby, since another host may see MPI. A helper that cannot carry out the order
// of a job on several hosts fails the start: the ranks of the other hosts have PMIx. The agent owns it. Lives on the
// agent's loop.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/clock.h"
#include "launcher/agent/ranks/rank_process.h"
#include "launcher/pmix/conversation.h"
#include "launcher/protocol/host_job.h"
#include "net/event_loop.h"

namespace hvd::launcher {

// Returns the helper's executable file; empty in a build without a helper.
std::string_view pmix_program();

// The beginning of the name of a job's folder on a host.
inline constexpr std::string_view kJobFolder = "horovod-job-";

class PmixHelper {
 public:
  // `folder` is for files of the job and does not exist yet. The agent's guardian removes it.
  PmixHelper(net::EventLoop& loop, std::string folder) : loop_(loop), folder_(std::move(folder)) {}
  ~PmixHelper() { forget(); }

  // Starts the helper, unless it is left out. Calls `on_answer` once, from begin() or on the loop: the helper
  // then serves or stands by, or has failed. `is_needed`: the program may use MPI.
  void begin(const HostJob& job, const Environment& environment, bool is_needed,
             std::function<void()> on_answer);
  bool has_answered() const { return !on_answer_; }
  // The value for Prepared: the version of PMIx here, kPmixUnneeded, or empty.
  const std::string& version() const { return version_; }
  // Returns the PMIx variables of each rank of this host; empty when the helper does not serve or
  // the launcher did not order PMIx. Blocks briefly. `store` is the store's address for this host.
  Result<std::map<int, Environment>> serve(const HostJob& job, const StartOrder& order,
                                           const std::string& store);

  // Whether ranks get no PMIx because their program seemed to use no MPI. After serve().
  bool is_left_out() const { return is_left_out_; }
  // Whether a rank has connected to the helper.
  bool was_used() const;
  // The helper's pid, or -1. The helper must not end before the ranks.
  pid_t pid() const { return process_.pid; }
  // Returns true when the helper is the only process left of the job.
  bool is_alone() const;
  // Lets the helper clean up and end. A call after its time limit kills the helper.
  void end();
  // The time at which the agent must call on_deadline().
  Deadline deadline() const { return has_answered() ? kill_at_ : answer_by_; }
  void on_deadline();

 private:
  void read();
  Result<std::map<int, Environment>> ask(const PmixOrder& order);
  std::string last_words() const;
  void answer();
  void forget();

  net::EventLoop& loop_;
  std::string folder_;
  UniqueFd lock_;  // on folder_
  RankProcess process_;
  std::string received_;
  std::string version_;
  bool is_left_out_ = false;
  std::function<void()> on_answer_;
  Deadline answer_by_ = Deadline::never();
  Deadline kill_at_ = Deadline::never();
};

// Returns the variables that identify a rank to PMIx, and further ones that MPI needs. Values of
// the user stay. Pure.
Environment pmix_rank_environment(const std::map<int, Environment>& served, const Environment& rank,
                                  const StartOrder& order);

}  // namespace hvd::launcher
