// Decides when the hosts and ranks of a launch change, and whether the job continues after a loss. ElasticJob is the
// policy of an elastic job. JobLaunch owns the policy, passes the job's events to it, and executes its orders. Lives on
// the launch's loop.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/hosts/host_table.h"
#include "net/asio.h"
#include "rendezvous/server/server.h"

namespace hvd::launcher {

// The functions of a launch that its policy may call.
class PolicyLaunch {
 public:
  virtual ~PolicyLaunch() = default;
  virtual HostTable& hosts() = 0;
  virtual rendezvous::Server& store() = 0;
  virtual net::asio::any_io_executor executor() = 0;
  virtual void print(std::string_view sentence) = 0;
  // Returns JobOutput::last_exception() of the rank.
  virtual std::string last_exception(int rank) const = 0;
  // Starts the agent of a host that was added to the table. JobPolicy::held() or survives() follows.
  virtual void reach(HostRun& host) = 0;
  // Starts the ranks of a host that is held.
  virtual void start(HostRun& host) = 0;
  virtual void end(HostRun& host) = 0;
  // Ends one rank of a host that keeps other ranks. If the host does not run yet, waits until it runs.
  virtual void end(RankRun& rank) = 0;
  // Ends the job, because it cannot continue. `rank`: the rank whose failure is the cause, or -1.
  virtual void end_job(int exit_code, const std::string& sentence, int rank) = 0;
};

// The base class is the policy of a job that keeps its hosts and ranks from beginning to end.
class JobPolicy {
 public:
  virtual ~JobPolicy() = default;
  // Called when all hosts are held, before their ranks start.
  virtual void begin() {}
  // Called when a host that the policy has added by reach() is held.
  virtual void held(HostRun&) {}
  // Returns whether the job continues after this failure (Supervisor::Survives).
  virtual bool survives(int /*rank*/, int /*host*/, int /*exit_code*/,
                        const std::string& /*sentence*/) {
    return false;
  }
  // Called when the host has not answered for --host-timeout. Returns whether the job continues without the host.
  virtual bool gives_up(HostRun&) { return false; }
  // Called when the ranks of a lost host have ended.
  virtual void ranks_ended(const HostRun&) {}
  // Called when a host has ended, or is lost.
  virtual void host_gone() {}
  // Called when the agent of this host is about to end.
  virtual void host_leaves(HostRun&, const std::string& /*why*/) {}
  // Executes `horovodrun resize N` or `remove HOST|RANK`, given as words. Returns a sentence about the consequence.
  virtual Result<std::string> change(const std::vector<std::string>& /*words*/) {
    return failed_precondition(
        "the number of ranks of this job is constant; start the job with --min-np or "
        "--host-discovery-script to change it");
  }
  // Called when the job ends. The policy then starts no further hosts.
  virtual void stop() {}
  // Returns when all coroutines of the policy have ended.
  virtual net::Task<void> end() { co_return; }
  // Returns whether the program must start again after the end of this launch.
  virtual bool wants_restart() const { return false; }
};

}  // namespace hvd::launcher
