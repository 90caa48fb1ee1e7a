// How the launcher starts the agent of each host: by a step of Slurm, by a command, or by ssh. Read once
// for each job; HostJobs and --dry-run ask it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/allocation/slurm_nodes.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/launch_settings.h"

namespace hvd::launcher {

struct SilenceLimits {
  double host_timeout_seconds = 0;  // --host-timeout
  double lease_seconds = 0;         // --lease
};

// `is_step`: the host is reached by a step of Slurm.
SilenceLimits silence_limits(const LaunchSettings& settings, bool is_step);

struct LaunchMethod {
  std::string command;   // gives a stream to the host, for CommandSpawner; empty: ssh
  bool is_step = false;  // of Slurm
  bool may_be_local =
      true;  // the launcher's own host may have an agent that is a child of the launcher
  SilenceLimits silence;
};

class LaunchMethods {
 public:
  // The settings outlive this object. In a job of Slurm, asks scontrol for its nodes.
  LaunchMethods(const LaunchSettings& settings, bool is_in_step);
  // For tests: in a job of Slurm with these nodes.
  LaunchMethods(const LaunchSettings& settings, std::string job, std::vector<SlurmNode> nodes,
                std::vector<std::string> variables, bool is_in_step);

  LaunchMethod of(const Host& host) const;
  // Whether hosts may be reached by steps of Slurm.
  bool has_steps() const { return !job_.empty(); }
  // The shortest limits of any host.
  SilenceLimits silence() const;
  // A shell command that prints the nodes of the job, if this host may be a node that has joined the job since;
  // empty otherwise.
  std::string question_about(const Host& host) const;
  // Takes what that command prints. Text without a node changes nothing.
  void take_answer(std::string_view text);

 private:
  bool may_be_node(const Host& host) const;
  const SlurmNode* node_of(const Host& host) const;
  std::string step_on(const SlurmNode& node) const;

  const LaunchSettings& settings_;
  std::string command_;  // of --launch-agent, of --ssh-command, or of the MPI Operator
  std::string job_;      // of Slurm; empty: no host is reached by a step
  std::vector<SlurmNode> nodes_;
  // The node of each address. Looked up once, when the first host is named by an address.
  mutable std::optional<std::map<std::string, size_t>> addresses_;
  std::vector<std::string> removed_variables_;  // of the step's srun
  bool is_in_step_ = false;
};

}  // namespace hvd::launcher
