// Reads the hosts of a scheduler's allocation from its environment variables: Slurm, LSF, PBS, SGE, OAR, Cobalt, and on
// Kubernetes Volcano and the MPI Operator. Pure: reads through functions that the caller passes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "launcher/allocation/slurm_nodes.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

struct Allocation {
  std::string source;           // "Slurm job 17", for messages
  std::vector<Host> hosts;      // empty: no variable names the hosts; `warnings` explains why
  bool counts_devices = false;  // slots are GPUs or cores, according to AllocationSources::device
  std::vector<std::string> warnings = {};  // also a sentence for each unknown word of a hostfile
};

using Variables = std::function<std::optional<std::string>(std::string_view)>;

struct AllocationSources {
  Variables variable;
  // All variables, for schedulers whose variables contain the user's names.
  std::function<std::vector<std::pair<std::string, std::string>>()> variables;
  // Returns a file's text; nothing if the file does not exist.
  std::function<std::optional<Result<std::string>>(const std::string&)> file;
  // Returns the nodes of the Slurm job, or an error why they are unknown.
  std::function<Result<std::vector<SlurmNode>>()> slurm_nodes = [] {
    return Result<std::vector<SlurmNode>>(unavailable("scontrol was not asked"));
  };
  // Returns the hosts of an SGE job, or an error why they are unknown.
  std::function<Result<std::vector<Host>>(const std::string& job)> sge_hosts = [](const auto&) {
    return Result<std::vector<Host>>(unavailable("qstat was not asked"));
  };
  // The device that counts as one slot: "gpu", "auto" or "cpu"; else empty.
  std::string device = {};
  std::optional<int> slots_per_host;
  // The user gives -np. The slots of a node are then its tasks, and the plan may exceed them up to the node's
  // resources.
  bool has_num_proc = false;
};

// The hostfile that the MPI Operator writes into a launcher's pod.
constexpr char kOperatorHostfile[] = "/etc/mpi/hostfile";

// Returns an error if another launcher has started several copies of this launcher: each copy would start a job.
Status refuse_copies(const Variables& variable);

// Returns nothing if no scheduler has assigned hosts. An error names the variable or the file.
Result<std::optional<Allocation>> find_allocation(const AllocationSources& sources);

// Parses a number for each node, as in Slurm's SLURM_TASKS_PER_NODE: "4(x2),3" is {4, 4, 3}.
Result<std::vector<int>> parse_repeated_counts(std::string_view text);

}  // namespace hvd::launcher
