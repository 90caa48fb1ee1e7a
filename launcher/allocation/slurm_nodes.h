// The nodes of the running job of Slurm, with its generic resources on each, as `scontrol show job -d`
// prints them. The plan of slots and the launch of agents use them.
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
  std::string resources;  // of the job on this node, as srun's --gres takes them; empty: none
  int gpus = 0;           // whole GPUs among them
  int component = -1;     // of a heterogeneous job, or -1
  int cpus = 0;           // of the job on this node; 0: not known
};

// Parses what `scontrol show job -d` prints about this job: all components of a heterogeneous job, and for the
// first number of an array also its other tasks, whose nodes do not count. Pure. An error names what it cannot read, or
// the state of a job that has no nodes now.
Result<std::vector<SlurmNode>> parse_slurm_nodes(std::string_view text, std::string_view job);

// Asks scontrol about this job. An error says why there is no answer.
Result<std::vector<SlurmNode>> read_slurm_nodes(const std::string& job);

using SlurmVariables = std::function<std::optional<std::string>(std::string_view)>;

// The nodes that SLURM_JOB_NODELIST names, with this end of the variable's name: empty, or "_HET_GROUP_1". An
// error names the variable.
Result<std::vector<std::string>> slurm_node_names(const SlurmVariables& variable,
                                                  const std::string& suffix);

// The components of a heterogeneous job by the ends of their variables' names; {""} for other jobs.
Result<std::vector<std::string>> slurm_suffixes(const SlurmVariables& variable);

// KillWait in what `scontrol show config` prints: the seconds from SIGTERM to SIGKILL for a step that is cancelled or
// at its time limit.
std::optional<int> parse_kill_wait(std::string_view config);
// Asks scontrol for it; nothing where there is no answer.
std::optional<int> read_kill_wait();

// The nodes that the variables name, in their components, where scontrol does not answer: without resources.
Result<std::vector<SlurmNode>> slurm_nodes_in(const SlurmVariables& variable);

// Whether these variables are those of a step that has a part of the job's resources: the numbers of the
// batch, the interactive and the external step, which have all of a node's, are special.
bool is_in_plain_step(const SlurmVariables& variable);

// The job's number where it is known to scontrol and srun: that of its leader in a heterogeneous job. Empty
// outside of Slurm.
std::string slurm_job_id();

}  // namespace hvd::launcher
