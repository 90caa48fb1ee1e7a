// The nodes of the running Slurm job, and its generic resources on each node, from `scontrol show job -d`.
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
  // The job's resources on the node, in the form of srun's --gres; may be empty.
  std::string resources;
  int gpus = 0;        // number of complete GPUs in `resources`
  int component = -1;  // component of a heterogeneous job, or -1
  int cpus = 0;        // the job's CPUs on this node; 0: unknown
};

// Parses the output of `scontrol show job -d` for this job: all components of a heterogeneous job. For the first task
// of an array, skips the nodes of the other tasks. Pure. An error names the unreadable text, or the state of a job that
// has no nodes now.
Result<std::vector<SlurmNode>> parse_slurm_nodes(std::string_view text, std::string_view job);

Result<std::vector<SlurmNode>> read_slurm_nodes(const std::string& job);

using SlurmVariables = std::function<std::optional<std::string>(std::string_view)>;

// Returns the nodes in the variable SLURM_JOB_NODELIST plus `suffix`: empty, or like "_HET_GROUP_1". An error names the
// variable.
Result<std::vector<std::string>> slurm_node_names(const SlurmVariables& variable,
                                                  const std::string& suffix);

// Returns the suffixes of the variables of a heterogeneous job's components; {""} for other jobs.
Result<std::vector<std::string>> slurm_suffixes(const SlurmVariables& variable);

// Parses KillWait from `scontrol show config`: the seconds from SIGTERM to SIGKILL when a step is cancelled or reaches
// its time limit.
std::optional<int> parse_kill_wait(std::string_view config);
// Runs scontrol to read KillWait; nullopt on failure.
std::optional<int> read_kill_wait();

// Returns the nodes in the variables, by component, without resources. Used if scontrol fails.
Result<std::vector<SlurmNode>> slurm_nodes_in(const SlurmVariables& variable);

// Returns whether these variables belong to a step with a part of the job's resources. Batch, interactive and external
// steps have all resources of a node, and special step numbers.
bool is_in_plain_step(const SlurmVariables& variable);

// Returns the job's number for scontrol and srun; in a heterogeneous job, the number of its leader. Empty outside
// Slurm.
std::string slurm_job_id();

}  // namespace hvd::launcher
