// The agent's connection to its PMIx helper (launcher/pmix), an executable embedded in the agent's.
// Starts the helper, and passes messages to it. When the helper cannot start or the host has no PMIx,
// the job runs without. The agent owns it. Lives on the agent's loop.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/clock.h"
#include "launcher/agent/loop/poll_loop.h"
#include "launcher/agent/ranks/rank_process.h"
#include "launcher/pmix/conversation.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

// The helper's executable file; empty in a build without one.
std::string_view pmix_program();

class PmixHelper {
 public:
  // `folder` is for files of the job, does not exist yet, and is removed by whoever outlives this.
  PmixHelper(PollLoop& loop, std::string folder) : loop_(loop), folder_(std::move(folder)) {}
  ~PmixHelper() { forget(); }

  // `on_answer` is called once, from here or on the loop: it serves, or it never will.
  void begin(const HostJob& job, const Environment& environment, std::function<void()> on_answer);
  bool has_answered() const { return !on_answer_; }
  // Version of PMIx; empty when the helper does not serve.
  const std::string& version() const { return version_; }
  // PMIx variables of each rank of this host; empty when the helper does not serve, or the launcher
  // did not order PMIx. Blocks briefly for the helper. `store`: address of the store for this host.
  std::map<int, Environment> serve(const HostJob& job, const StartOrder& order,
                                   const std::string& store);

  // Not to be ended before the ranks; -1 when there is none.
  pid_t pid() const { return process_.pid; }
  // It alone is left of the job.
  bool is_alone() const;
  // Lets it clean up and end; later calls, once that took too long, kill it.
  void end();
  // When somebody should look at this again.
  Deadline deadline() const { return has_answered() ? kill_at_ : answer_by_; }
  void on_deadline();

 private:
  void read();
  void answer();
  void forget();

  PollLoop& loop_;
  std::string folder_;
  RankProcess process_;
  std::string heard_;
  std::string version_;
  std::function<void()> on_answer_;
  Deadline answer_by_ = Deadline::never();
  Deadline kill_at_ = Deadline::never();
};

// How a rank's environment names it to PMIx, and what else MPI needs; pure. The user's values stay.
Environment pmix_rank_environment(const std::map<int, Environment>& served, const Environment& rank,
                                  const StartOrder& order);

}  // namespace hvd::launcher
