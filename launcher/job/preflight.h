// Brings an agent up on every host at once and lets each check its part of the job. Starts no
// rank. Lives on the loop; must outlive the loop's run.
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

// One host on its way to readiness.
struct HostStart {
  SpawnTarget target;
  // Asked once it is known whether the host is this machine.
  std::function<HostJob(bool is_local)> make_job;
  AgentEvents* events = nullptr;
  std::shared_ptr<const StagedCode> code{};  // may be none
};

class Preflight {
 public:
  // The spawners outlive it.
  Preflight(net::asio::any_io_executor executor, Spawner& local, Spawner& remote,
            std::vector<HostStart> hosts);
  ~Preflight();

  // One error for each host that is not ready, "host b: stage: cause"; none: all are. A host that
  // failed leaves the others only a moment more, for their own errors.
  net::Task<std::vector<Status>> run(double timeout_seconds);
  // How far each host is.
  std::vector<HostProgress> progress() const;
  // Those of the errors, by their place.
  const std::vector<int>& failed_hosts() const { return failed_hosts_; }
  // Ends run, and every agent with it.
  void cancel();
  // In the order of the hosts, after a run without errors.
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
  double seconds_ = 0;  // that all may take
};

}  // namespace hvd::launcher
