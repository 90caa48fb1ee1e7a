// Builds the input of each host's agent: how to reach the host, the command, its directory, the staged code and the
// ranks' environment. Owns the settings that it has read from this machine. Opens no connection. JobLaunch owns this
// object. Lives on the launch's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/secrets/secret.h"
#include "launcher/allocation/launch_method.h"
#include "launcher/hosts/host_table.h"
#include "launcher/plan/environment_choice.h"
#include "launcher/plan/host_remarks.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/plan/slot_plan.h"
#include "launcher/plan/staged_code.h"
#include "launcher/plan/worker_env.h"
#include "launcher/protocol/host_job.h"
#include "launcher/reach/own_package.h"
#include "launcher/spawn/spawner.h"

namespace hvd::launcher {

class ScriptRun;

class HostJobs {
 public:
  // All arguments outlive this object. `hosts` begins with the hosts of `plan`.
  HostJobs(const Options& options, const SlotPlan& plan, const HostTable& hosts,
           uint32_t generation, const JobIdentity& identity, bool is_elastic = false);

  // Reads from this machine: the path of the agent, the directory, the code to stage, the environment.
  // Call once, before all other functions.
  Status read();
  HostJob job_of(const HostRun& host, bool is_local);
  // Adds the variables derived from the master endpoint, and removes those that --no-torch-env excludes.
  void complete(StartOrder& order) const;
  // Returns the package that job_of() offers to hosts; null if no host needs it, this machine has none, or, after a
  // printed error, it cannot be read.
  const std::shared_ptr<const OwnPackage>& package() const { return package_; }
  SpawnTarget target_of(const Host& host) const;
  // Call before target_of() for a host that starts while the job runs: the host may have joined the Slurm allocation.
  net::Task<void> find_node(net::asio::any_io_executor executor, Host host);
  // Makes each running find_node() return soon.
  void cancel();
  // Returns the shortest lease of all hosts.
  double lease_seconds() const { return methods_.silence().lease_seconds; }
  double host_timeout(const HostRun& host) const { return silence_of(host).host_timeout_seconds; }
  // Returns the seconds without a message from a host after which its agent has surely ended its ranks.
  double silent_ranks_end_after() const;
  const std::shared_ptr<const StagedCode>& code() const { return code_; }
  const EnvironmentChoice& environment_choice() const { return environment_; }
  // Returns a sentence for the user if the command contains another launcher; else an empty text.
  const std::string& remark() const { return remark_; }
  // Returns the secret that the parent process of --store-fd gets. Each rank gets only its own key, made from this
  // secret. The key proves that the rank itself has stored its result.
  const Secret& results_secret() const { return results_secret_; }
  // Returns the seconds between the end signal and SIGKILL when the job ends.
  double grace() const { return grace_; }
  int end_signal() const { return end_signal_; }

 private:
  void offer_package(HostJob& job, bool is_local);
  void end_before_slurm();
  Environment environment_of(const JobEnvironment& shared, bool is_local) const;
  // Returns whether ranks in a Slurm allocation get the variables of srun's tasks. Ranks of an elastic job change, so
  // they get no SLURM_NTASKS and SLURM_PROCID: frameworks then do not treat these ranks as Slurm tasks.
  bool has_places_in_slurm() const;
  Environment place_of(const RankRun& rank) const;
  SilenceLimits silence_of(const HostRun& host) const { return methods_.of(host.host()).silence; }

  const Options& options_;
  const SlotPlan& plan_;
  const HostTable& hosts_;
  const uint32_t generation_;
  const bool is_elastic_;
  const JobIdentity& identity_;
  const Secret results_secret_ = Secret::random();
  LaunchMethods methods_;
  double grace_;
  const int end_signal_;
  std::string agent_;
  std::string directory_;
  bool joins_torchruns_ = false;  // torchrun's processes on all hosts form one world
  std::string torchrun_port_;     // set by the user, or empty
  std::string remark_;
  std::shared_ptr<const StagedCode> code_;
  EnvironmentChoice environment_;
  bool is_package_read_ = false;
  std::shared_ptr<const OwnPackage> package_;
  std::set<ScriptRun*> questions_;  // the running find_node() calls
};

// Removes kPmix from each host's list. Returns true if every list had it: the job then registers its ranks with PMIx,
// which requires PMIx on all hosts.
bool take_pmix(std::vector<Versions>& versions);
// Adds the placement of all ranks to each host's order.
void order_pmix(const HostTable& hosts, std::vector<StartOrder>& orders);

}  // namespace hvd::launcher
