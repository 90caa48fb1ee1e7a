// Determines how the launcher starts each host's agent: by a step of Slurm, by a command, or by ssh. Reads the settings
// once per job.
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

// `is_step`: a Slurm step starts the host's agent.
SilenceLimits silence_limits(const LaunchSettings& settings, bool is_step);

struct LaunchMethod {
  std::string command;   // connects a stream to the host, for CommandSpawner; empty: ssh
  bool is_step = false;  // a step of Slurm starts the agent
  bool may_be_local =
      true;  // the launcher's own host may have an agent that is the launcher's child
  SilenceLimits silence;
};

class LaunchMethods {
 public:
  // The settings must outlive this object. In a Slurm job, runs scontrol to find the nodes.
  LaunchMethods(const LaunchSettings& settings, bool is_in_step);
  // For tests: makes the methods of a Slurm job with these nodes.
  LaunchMethods(const LaunchSettings& settings, std::string job, std::vector<SlurmNode> nodes,
                std::vector<std::string> variables, bool is_in_step);

  LaunchMethod of(const Host& host) const;
  // Returns whether hosts may be reached by steps of Slurm.
  bool has_steps() const { return !job_.empty(); }
  // Returns the shortest limits of all hosts.
  SilenceLimits silence() const;
  // If this host may have joined the Slurm job after the nodes were read, returns a shell command that prints the job's
  // nodes. Otherwise returns an empty text.
  std::string question_about(const Host& host) const;
  // Parses the output of the command of question_about(). Text without a node changes nothing.
  void take_answer(std::string_view text);

 private:
  bool may_be_node(const Host& host) const;
  const SlurmNode* node_of(const Host& host) const;
  std::string step_on(const SlurmNode& node) const;

  const LaunchSettings& settings_;
  std::string command_;  // command of --launch-agent, --ssh-command or the MPI Operator
  std::string job_;      // Slurm's job id; empty: no host uses a step
  std::vector<SlurmNode> nodes_;
  // The node of each address. Resolved once, when an address first names a host.
  mutable std::optional<std::map<std::string, size_t>> addresses_;
  std::vector<std::string> removed_variables_;  // removed from the environment of the step's srun
  bool is_in_step_ = false;
};

}  // namespace hvd::launcher
