// What each host's agent is given: how it is reached, the command, its directory, the code that travels
// and the ranks' environment. Owns what it read of this machine for that, and the job's number; never
// reaches a host. Lives in a job's launch, on its one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/secrets/secret.h"
#include "launcher/cli/options.h"
#include "launcher/job/staged_code.h"
#include "launcher/plan/environment_choice.h"
#include "launcher/plan/slot_plan.h"
#include "launcher/protocol/host_job.h"
#include "launcher/spawn/spawner.h"

namespace hvd::launcher {

class HostJobs {
 public:
  // All of these outlive this.
  HostJobs(const Options& options, const SlotPlan& plan, uint32_t generation, const Secret& secret);

  // Reads this machine: the agent's file, the directory, the code to stage, variables. Once, before
  // the others.
  Status read();
  HostJob job_of(int host, bool is_local) const;
  SpawnTarget target_of(const Host& host) const;
  const std::shared_ptr<const StagedCode>& code() const { return code_; }
  const EnvironmentChoice& environment_choice() const { return environment_; }
  // The rank's standard input comes from the launcher.
  bool reads_input(int rank) const;
  // Between the end signal and SIGKILL of the ranks of a job that ends.
  double grace() const { return grace_; }
  int end_signal() const { return end_signal_; }

 private:
  const Options& options_;
  const SlotPlan& plan_;
  const uint32_t generation_;
  const Secret& secret_;
  const double grace_;
  const int end_signal_;
  const uint64_t job_;
  std::string agent_;
  std::string directory_;
  std::shared_ptr<const StagedCode> code_;
  EnvironmentChoice environment_;
};

}  // namespace hvd::launcher
