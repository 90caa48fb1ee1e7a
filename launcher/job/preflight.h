// Starts the agents of all hosts in parallel. Each agent checks its host's part of the job. Starts no
// rank. HostStartup owns and calls it. Lives on the launch's loop, and must outlive the loop's run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/job/launch_progress.h"
#include "launcher/job/staged_code.h"
#include "launcher/link/agent_link.h"
#include "launcher/spawn/spawner.h"
#include "net/asio.h"

namespace hvd::launcher {

// The input for the start of one host's agent.
struct HostStart {
  SpawnTarget target;
  // Called when the preflight knows whether the host is this machine.
  std::function<HostJob(bool is_local)> make_job;
  AgentEvents* events = nullptr;
  std::shared_ptr<const StagedCode> code{};  // null without --stage
};

class Preflight {
 public:
  // The spawners outlive this object.
  Preflight(net::asio::any_io_executor executor, Spawner& local, Spawner& remote,
            std::vector<HostStart> hosts);
  ~Preflight();

  // Returns one error for each host that is not ready, "host b: stage: cause"; empty: all are ready.
  // After the first failure the other hosts have 2 s to report their own errors. `timeout_seconds`
  // (--start-timeout) limits all stages of a host together, ssh included.
  net::Task<std::vector<Status>> run(double timeout_seconds);
  // The current stage of each host.
  std::vector<HostProgress> progress() const;
  // The indices of the hosts of the errors, in the same order.
  const std::vector<int>& failed_hosts() const { return failed_hosts_; }
  // Ends run() and every agent.
  void cancel();
  // Returns the links in the order of the hosts. Call after a run() without errors.
  std::vector<std::unique_ptr<AgentLink>> take_links();

 private:
  struct Progress;
  net::Task<Status> bring_up(Progress& host);
  net::Task<void> wait_for_all(Deadline deadline);
  void abandon_unfinished();
  Deadline give_up_late_ones();
  void give_up(Progress& host, double seconds);

  net::asio::any_io_executor executor_;
  Spawner& local_;
  Spawner& remote_;
  std::vector<std::unique_ptr<Progress>> hosts_;
  std::vector<int> failed_hosts_;
  net::asio::steady_timer changed_;
  bool cancelled_ = false;
  double seconds_ = 0;  // the limit for all hosts
};

}  // namespace hvd::launcher
