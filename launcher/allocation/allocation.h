// Reads the hosts of a scheduler's allocation from its environment variables: Slurm, LSF, PBS, SGE,
// and on Kubernetes Volcano and the MPI Operator. Pure: reads through functions that the caller passes.
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
  std::string source;       // "Slurm job 17", for messages
  std::vector<Host> hosts;  // empty: no variable names them, and a warning says so
  bool counts_devices =
      false;  // slots are the GPUs or cores that AllocationSources::device asks for
  std::vector<std::string> warnings = {};  // also a sentence for each unknown word of a hostfile
};

using Variables = std::function<std::optional<std::string>(std::string_view)>;

struct AllocationSources {
  Variables variable;
  // All variables, for schedulers that put names of the user into theirs.
  std::function<std::vector<std::pair<std::string, std::string>>()> variables;
  // Nothing when there is no such file.
  std::function<std::optional<Result<std::string>>(const std::string&)> file;
  // The nodes of the job of Slurm; an error says why they are unknown.
  std::function<Result<std::vector<SlurmNode>>()> slurm_nodes = [] {
    return Result<std::vector<SlurmNode>>(unavailable("scontrol was not asked"));
  };
  // The hosts of a job of SGE; an error says why they are unknown.
  std::function<Result<std::vector<Host>>(const std::string& job)> sge_hosts = [](const auto&) {
    return Result<std::vector<Host>>(unavailable("qstat was not asked"));
  };
  // "gpu", "auto" or "cpu", where each of them is a slot; else empty.
  std::string device = {};
  // --slots-per-host, where the user gives it.
  std::optional<int> slots_per_host;
  // Whether the user gives -np: then slots are tasks, and the plan may use more of what a node has.
  bool has_num_proc = false;
};

// Hostfile that the MPI Operator writes into a launcher's pod.
constexpr char kOperatorHostfile[] = "/etc/mpi/hostfile";

// Not ok where another launcher has started several of this one, each of which would start a job.
Status refuse_copies(const Variables& variable);

// Nothing when no scheduler has given any. An error names the variable or the file.
Result<std::optional<Allocation>> find_allocation(const AllocationSources& sources);

// "4(x2),3" is {4, 4, 3}, as Slurm writes SLURM_TASKS_PER_NODE.
Result<std::vector<int>> parse_repeated_counts(std::string_view text);

}  // namespace hvd::launcher
