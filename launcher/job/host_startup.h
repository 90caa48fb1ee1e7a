// Brings up the agents of all hosts before any rank starts, shows how far each host is, and compares
// what they report. Owns the spawners and the preflight; never starts a rank. Lives in a job's launch,
// on its loop, as long as the links that it made.
#pragma once

#include <memory>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/job/host_jobs.h"
#include "launcher/job/master_endpoint.h"
#include "launcher/job/preflight.h"
#include "launcher/link/agent_link.h"
#include "launcher/link/join_queue.h"
#include "launcher/output/output.h"
#include "launcher/spawn/command_spawner.h"
#include "launcher/spawn/local.h"
#include "launcher/spawn/ssh/ssh_spawner.h"

namespace hvd::launcher {

class HostStartup {
 public:
  // All of these outlive this. `join_queue`: where the hosts have joined, or null.
  HostStartup(net::asio::io_context& loop, const Options& options, const SlotPlan& plan,
              const HostJobs& host_jobs, JoinQueue* join_queue);

  struct Outcome {
    std::vector<std::unique_ptr<AgentLink>> links;  // none when it was cancelled or failed
    MasterEndpoints master_endpoints;
    std::vector<Status> errors;
    std::vector<int> failed_hosts;
  };
  // Once. `events`: of each host, outlive the links. `output` shows the progress.
  net::Task<Outcome> run(const std::vector<AgentEvents*>& events, Output& output);
  // Ends run, and every agent with it.
  void cancel();

 private:
  std::vector<HostStart> host_starts(const std::vector<AgentEvents*>& events) const;
  net::Task<void> show_progress(Output& output);
  // Says how the hosts differ; whether all have PMIx.
  bool compare(const std::vector<std::unique_ptr<AgentLink>>& links, Output& output) const;
  void find_lost(Outcome& outcome) const;

  net::asio::io_context& loop_;
  const Options& options_;
  const SlotPlan& plan_;
  const HostJobs& host_jobs_;
  JoinQueue* const join_queue_;
  net::asio::steady_timer progress_;
  LocalSpawner local_;
  SshSpawner ssh_;
  CommandSpawner by_command_;
  std::unique_ptr<Preflight> preflight_;
  bool is_cancelled_ = false;
};

}  // namespace hvd::launcher
