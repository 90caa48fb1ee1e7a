// Starts the agents of all hosts before any rank starts, shows the progress of each host, and compares
// the agents' reports. Owns the spawners and the preflight; starts no rank. JobLaunch owns and calls it.
// Lives on the launch's loop, and outlives the links that it returns.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/job/host_jobs.h"
#include "launcher/job/master_endpoint.h"
#include "launcher/job/preflight.h"
#include "launcher/link/agent_link.h"
#include "launcher/link/join_queue.h"
#include "launcher/link/session_spawner.h"
#include "launcher/output/output.h"
#include "launcher/spawn/local.h"
#include "launcher/spawn/ssh/remote_spawner.h"

namespace hvd::launcher {

class HostStartup {
 public:
  // All arguments outlive this object. `join_queue`: the queue in which the hosts have joined, or null.
  HostStartup(net::asio::io_context& loop, const Options& options, const SlotPlan& plan,
              HostJobs& host_jobs, JoinQueue* join_queue);

  struct Outcome {
    std::vector<std::unique_ptr<AgentLink>> links;  // empty after cancel() or an error
    MasterEndpoints master_endpoints;
    std::vector<Status> errors;
    std::vector<int> failed_hosts;
  };
  // Call once. `events`: one receiver for each host; they outlive the links. `output` shows the progress.
  net::Task<Outcome> run(const std::vector<AgentEvents*>& events, JobOutput& output);
  // After run(): starts the agent of one more host of the plan.
  net::Task<Result<std::unique_ptr<AgentLink>>> add(int host, AgentEvents* events);
  // Ends run(), add() and every agent.
  void cancel();

 private:
  std::vector<HostStart> host_starts(const std::vector<AgentEvents*>& events) const;
  HostStart start_of(int host, AgentEvents* events) const;
  net::Task<void> show_progress(JobOutput& output);
  // Prints how the hosts differ. Returns whether all have PMIx.
  bool compare(const std::vector<std::unique_ptr<AgentLink>>& links, JobOutput& output) const;
  void find_lost(Outcome& outcome) const;

  net::asio::io_context& loop_;
  const Options& options_;
  const SlotPlan& plan_;
  HostJobs& host_jobs_;
  JoinQueue* const join_queue_;
  net::asio::steady_timer progress_;
  LocalSpawner local_;
  RemoteSpawner remote_;
  SessionSpawner local_sessions_, remote_sessions_;
  std::unique_ptr<Preflight> preflight_;
  std::list<Preflight> additions_;
  bool is_cancelled_ = false;
};

}  // namespace hvd::launcher
