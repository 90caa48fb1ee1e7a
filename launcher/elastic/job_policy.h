// Decides when the hosts and ranks of a launch change, and whether the job continues without one of them. An elastic job
// has ElasticJob. JobLaunch owns the policy, passes it the events of the job, and carries out its orders. Lives on the
// launch's loop.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/hosts/host_table.h"
#include "net/asio.h"
#include "rendezvous/server/server.h"

namespace hvd::launcher {

// The launch as its policy uses it: the launch's parts, and the orders that the launch carries out.
class PolicyLaunch {
 public:
  virtual ~PolicyLaunch() = default;
  virtual HostTable& hosts() = 0;
  virtual rendezvous::Server& store() = 0;
  virtual net::asio::any_io_executor executor() = 0;
  // Prints a sentence for the user.
  virtual void print(std::string_view sentence) = 0;
  // Returns JobOutput::last_exception() of the rank.
  virtual std::string last_exception(int rank) const = 0;
  // Starts the agent of a host that was added to the table. JobPolicy::held() or survives() follows.
  virtual void reach(HostRun& host) = 0;
  // Starts the ranks of a host that is held.
  virtual void start(HostRun& host) = 0;
  // Ends all ranks of a host.
  virtual void end(HostRun& host) = 0;
  // Ends one rank of a host that keeps other ranks. If the host does not run yet, waits until it runs.
  virtual void end(RankRun& rank) = 0;
  // Ends the job, which cannot continue. `rank`: the rank whose failure is the cause, or -1.
  virtual void end_job(int exit_code, const std::string& sentence, int rank) = 0;
};

// As it stands, the policy of a job that keeps its hosts and ranks from beginning to end.
class JobPolicy {
 public:
  virtual ~JobPolicy() = default;
  // All hosts are held; their ranks are about to start.
  virtual void begin() {}
  // A host for which the policy has called reach() is held.
  virtual void held(HostRun&) {}
  // Supervisor::Survives calls this.
  virtual bool survives(int /*rank*/, int /*host*/, int /*exit_code*/,
                        const std::string& /*sentence*/) {
    return false;
  }
  // The host has not answered for --host-timeout. Returns whether the job continues without it.
  virtual bool gives_up(HostRun&) { return false; }
  // The ranks of a lost host have ended.
  virtual void ranks_ended(const HostRun&) {}
  // A host has ended, or is lost.
  virtual void host_gone() {}
  // The agent of this host is about to end.
  virtual void host_leaves(HostRun&, const std::string& /*why*/) {}
  // Executes `horovodrun resize N` or `remove HOST|RANK`, given as words. Returns a sentence about the consequence.
  virtual Result<std::string> change(const std::vector<std::string>& /*words*/) {
    return failed_precondition(
        "the number of ranks of this job is constant; start the job with --min-np or "
        "--host-discovery-script to change it");
  }
  // Starts no more hosts, because the job ends.
  virtual void stop() {}
  // Returns when no coroutine of the policy runs.
  virtual net::Task<void> end() { co_return; }
  // Whether the program must start again after the end of this launch.
  virtual bool wants_restart() const { return false; }
};

}  // namespace hvd::launcher
