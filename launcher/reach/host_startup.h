// Starts the agents of all hosts before any rank starts, shows the progress of each host, and compares the agents'
// reports. Owns the spawners and the preflight; starts no rank. JobLaunch and the count of slots (first_hosts.h) own
// one such object each. Lives on the launch's loop, and outlives the links of the hosts.
#pragma once

#include <string>
#include <vector>

#include "launcher/hosts/host_table.h"
#include "launcher/link/join_queue.h"
#include "launcher/link/resumable_duplex.h"
#include "launcher/output/output.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/reach/host_jobs.h"
#include "launcher/reach/own_package.h"
#include "launcher/reach/preflight.h"
#include "launcher/reach/staged_environment.h"
#include "launcher/spawn/command_spawner.h"
#include "launcher/spawn/ssh/ssh_spawner.h"

namespace hvd::launcher {

class HostStartup {
 public:
  // All arguments must outlive this object. `join_queue`: the queue in which the hosts have joined, or null.
  // `environment`: the environment that the job's earlier launches have resolved.
  HostStartup(net::asio::io_context& loop, const Options& options, HostTable& hosts,
              HostJobs& host_jobs, JoinQueue* join_queue, ResolvedEnvironment& environment);

  // Starts the agents of all hosts, and waits until the hosts are held. Returns the errors of Preflight::run(), but
  // only one error about an environment that cannot be resolved.
  net::Task<std::vector<Status>> reach();
  struct Outcome {
    std::vector<Status> errors;
    std::vector<std::string> warnings;  // as in MasterEndpoints
  };
  // Reaches all hosts, and shows the progress on `output`. Call once. When the call returns, all hosts are held and
  // have their start orders, unless there was an error or a cancel().
  net::Task<Outcome> run(JobOutput& output);
  // Call after run(). Starts the agent of one more host. Returns ok when the host is held.
  net::Task<Status> add(HostRun& host);
  // Makes run() and add() return, and ends the agents that are not held yet.
  void cancel();

 private:
  HostStart start_of(HostRun& host);
  // Prints the hosts whose ranks use a copy of the launcher's package, or an environment of --stage-env.
  void report_copies(const std::vector<const HostRun*>& hosts) const;
  net::Task<void> show_progress(JobOutput& output);
  // Prints how the hosts differ. Returns whether all hosts have PMIx.
  bool compare(JobOutput& output) const;
  void find_lost(Outcome& outcome);

  net::asio::io_context& loop_;
  const Options& options_;
  HostTable& hosts_;
  HostJobs& host_jobs_;
  JoinQueue* const join_queue_;
  net::asio::steady_timer progress_;
  LocalSpawner local_;
  RemoteSpawner remote_;
  SessionSpawner local_sessions_, remote_sessions_;
  Preflight preflight_;
  PackageArchive archive_;
  StagedEnvironment environment_;
  JobOutput* output_ = nullptr;  // null before run()
  bool is_cancelled_ = false;
  bool is_reached_ = false;  // run() has ended the progress line
};

}  // namespace hvd::launcher
