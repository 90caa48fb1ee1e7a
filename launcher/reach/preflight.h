// Starts the agents of hosts. Each agent checks its host, and then waits for the order to start ranks. Starts
// no rank. HostStartup owns this object. Lives on the launch's loop. The object and the hosts must outlive the loop's
// run.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/hosts/host_table.h"
#include "launcher/output/launch_progress.h"
#include "launcher/plan/staged_code.h"
#include "launcher/spawn/spawner.h"
#include "net/asio.h"

namespace hvd::launcher {

struct HostStart {
  HostRun* host = nullptr;
  SpawnTarget target;
  // Called when the preflight has determined whether the host is this machine.
  std::function<HostJob(bool is_local)> make_job;
  std::shared_ptr<const StagedCode> code{};  // null without --stage
  AgentLink::PackageParts package{};         // the package that the job offers
  AgentLink::Environment environment{};
};

class Preflight {
 public:
  // The spawners must outlive this object.
  Preflight(net::asio::any_io_executor executor, Spawner& local, Spawner& remote);
  ~Preflight();

  // Returns one error for each host that is not ready, "host b: stage: cause"; empty: all hosts are held, or cancel()
  // was called. After the first failure, the other hosts have 2 s to report their own errors, and are then dropped.
  // `timeout_seconds` (--start-timeout) limits the sum of all stages of a host, including ssh, until the host gets its
  // environment; getting the environment has no limit. Several calls may run at once, for different hosts.
  net::Task<std::vector<Status>> run(std::vector<HostStart> hosts, double timeout_seconds);
  // Makes each run() return, and ends the agents that are not held yet.
  void cancel();

 private:
  struct Attempt;
  struct Attempts;
  net::Task<Status> bring_up(std::shared_ptr<Attempt> attempt);
  void finish(Attempts& attempts, Attempt& attempt, Status status);
  net::Task<void> wait_for_all(Attempts& attempts, Deadline& deadline, double timeout_seconds);
  Deadline give_up_late_ones(Attempts& attempts);
  void give_up(Attempts& attempts, Attempt& attempt, double seconds);
  void give_up_all(Attempts& attempts, double seconds);

  net::asio::any_io_executor executor_;
  Spawner& local_;
  Spawner& remote_;
  std::vector<std::shared_ptr<Attempts>> running_;
};

// Returns the progress of each host, for the progress line on a terminal.
std::vector<HostProgress> progress_of(const HostTable& hosts);

}  // namespace hvd::launcher
