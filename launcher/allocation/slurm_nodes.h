// The nodes of the running Slurm job, and its generic resources on each node, from `scontrol show
// job -d`. The plan of slots and the launch of agents use them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

struct SlurmNode {
  std::string name;
  std::string resources;  // the job's, in the form of srun's --gres; may be empty
  int gpus = 0;           // complete GPUs among them
  int component = -1;     // component of a heterogeneous job, or -1
  int cpus = 0;           // the job's CPUs on this node; 0: unknown
};

// Parses the output of `scontrol show job -d` for this job: all components of a heterogeneous job;
// for an array's first task it skips the other tasks' nodes. Pure. An error names the unreadable
// text, or the state of a job that has no nodes now.
Result<std::vector<SlurmNode>> parse_slurm_nodes(std::string_view text, std::string_view job);

// Runs scontrol for this job. An error has the reason of a failure.
Result<std::vector<SlurmNode>> read_slurm_nodes(const std::string& job);

using SlurmVariables = std::function<std::optional<std::string>(std::string_view)>;

// The nodes in SLURM_JOB_NODELIST plus the suffix: empty, or "_HET_GROUP_1". An error names the
// variable.
Result<std::vector<std::string>> slurm_node_names(const SlurmVariables& variable,
                                                  const std::string& suffix);

// The variable suffixes of a heterogeneous job's components; {""} for other jobs.
Result<std::vector<std::string>> slurm_suffixes(const SlurmVariables& variable);

// Parses KillWait from `scontrol show config`: the seconds from SIGTERM to SIGKILL when a step is
// cancelled or reaches its time limit.
std::optional<int> parse_kill_wait(std::string_view config);
// Runs scontrol to read KillWait; empty on failure.
std::optional<int> read_kill_wait();

// The nodes in the variables, by component, for the case that scontrol fails: without resources.
Result<std::vector<SlurmNode>> slurm_nodes_in(const SlurmVariables& variable);

// Returns whether these variables belong to a step with a part of the job's resources. The batch,
// interactive and external steps have all resources of a node, and special step numbers.
bool is_in_plain_step(const SlurmVariables& variable);

// The job's number for scontrol and srun: in a heterogeneous job, its leader's. Empty outside
// Slurm.
std::string slurm_job_id();

}  // namespace hvd::launcher
