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
};

// Parses the output of `scontrol show job -d`. Pure. An error names what it cannot read.
Result<std::vector<SlurmNode>> parse_slurm_nodes(std::string_view text);

// Asks scontrol about this job. An error says why there is no answer.
Result<std::vector<SlurmNode>> read_slurm_nodes(const std::string& job);

// Whether these variables are those of a step that has a part of the job's resources: the numbers of the
// batch, the interactive and the external step, which have all of a node's, are special.
bool is_in_plain_step(const std::function<std::optional<std::string>(std::string_view)>& variable);

// The job's number where it is known to scontrol and srun: that of its leader in a heterogeneous job. Empty
// outside of Slurm.
std::string slurm_job_id();

}  // namespace hvd::launcher
