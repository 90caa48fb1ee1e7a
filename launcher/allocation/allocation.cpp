#include "launcher/allocation/allocation.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/cores.h"
#include "base/names/name_ranges.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

using Found = Result<std::optional<Allocation>>;

class AllocationFinder {
 public:
  explicit AllocationFinder(const AllocationSources& sources)
      : sources_(sources), slots_alone_(sources.slots_per_host.value_or(1)) {}

  Found slurm() const;
  Found slurm_by_number() const;
  Found lsf() const;
  Found pbs() const;
  Found sge() const;
  Found oar() const;
  Found cobalt() const;
  Found volcano() const;
  Found kubernetes() const;

 private:
  // Returns the trimmed value of a variable; empty if it is unset.
  std::string variable(std::string_view name) const {
    return std::string(trim(sources_.variable(name).value_or("")));
  }
  Status add_slurm_group(HostList& hosts, const std::string& suffix,
                         const std::vector<SlurmNode>& nodes) const;
  Result<std::vector<int>> slurm_tasks(const std::string& suffix, size_t count,
                                       bool are_needed) const;
  std::vector<int> slurm_cpus(const std::string& suffix, size_t count) const;
  bool are_tasks_asked(const std::string& suffix) const;
  Host slurm_host(const std::string& name, int tasks, bool are_asked, int gpus, int cpus) const;
  // How a file gives a host's slots: by one line per slot, by a number as the second word of a line, or not at
  // all.
  enum class Count { kByLines, kBySecondWord, kNone };
  // `has_id`: the scheduler always sets the variable together with a job's id.
  Found from_file(std::string source, const std::string& variable_name, Count count,
                  bool has_id) const;

  const AllocationSources& sources_;
  int slots_alone_;
};

bool names_hosts_of_task(std::string_view variable) {
  constexpr std::string_view kBegin = "VC_", kEnd = "_HOSTS";
  return variable.size() > kBegin.size() + kEnd.size() && variable.starts_with(kBegin) &&
         variable.ends_with(kEnd);
}

Found found(std::string source, HostList& hosts) {
  auto all = hosts.take();
  if (!all.ok()) return all.status().with_context(source);
  if (all->empty()) return invalid_argument(cat(source, " has no host; name hosts with -H"));
  return std::optional(Allocation{.source = std::move(source), .hosts = *std::move(all)});
}

// Returns the result for a job whose hosts no variable names: ranks run on this machine, which may be a login node.
Found without_hosts(const std::string& source, const std::string& why) {
  return std::optional(
      Allocation{.source = source,
                 .hosts = {},
                 .warnings = {cat(source, ": ", why,
                                  ", so all ranks run on this machine; name hosts with -H")}});
}

Status add_named(HostList& hosts, std::string_view name, int slots) {
  HVD_RETURN_IF_ERROR(check_host_name(name));
  return hosts.add({std::string(name), "", slots});
}

// Returns the number of tasks on each node. If the variables do not give it, returns a default. If no default fits and
// the tasks are needed, returns an error.
Result<std::vector<int>> AllocationFinder::slurm_tasks(const std::string& suffix, size_t count,
                                                       bool are_needed) const {
  const std::string name = "SLURM_TASKS_PER_NODE" + suffix;
  const std::string value = variable(name);
  if (value.empty()) {
    const int64_t all = parse_int(variable("SLURM_NTASKS" + suffix)).value_or(0);
    const bool are_apart = variable("SLURM_DISTRIBUTION") == "arbitrary" && all > 0 &&
                           static_cast<size_t>(all) != count;
    if (are_apart && are_needed && !sources_.has_num_proc) {
      return invalid_argument(
          cat(name, " is not set, and the job has ", all, " tasks on ", count,
              " nodes, which sbatch --distribution=arbitrary places: name hosts and slots with -H, "
              "or write --slots-per-host N"));
    }
    return std::vector<int>(count, slots_alone_);
  }
  auto slots = parse_repeated_counts(value);
  if (!slots.ok()) return slots.status().with_context(name);
  if (slots->size() == count) return slots;
  // Within a step, this variable describes the step's hosts, but the host list is the job's.
  if (const std::string each = variable("SLURM_NTASKS_PER_NODE" + suffix); !each.empty()) {
    auto number = parse_slots(each);
    if (!number.ok()) return number.status().with_context("SLURM_NTASKS_PER_NODE" + suffix);
    return std::vector<int>(count, *number);
  }
  if (!are_needed) return std::vector<int>(count, 1);
  return invalid_argument(cat(name, "=", printable(value), " names ", slots->size(),
                              " hosts, and the job's list of hosts has ", count,
                              ": start horovodrun outside of srun, or name hosts with -H"));
}

// Returns the job's CPUs on each node, divided by the CPUs of a task; 0 if unknown.
std::vector<int> AllocationFinder::slurm_cpus(const std::string& suffix, size_t count) const {
  auto cpus = parse_repeated_counts(variable("SLURM_JOB_CPUS_PER_NODE" + suffix));
  if (!cpus.ok() || cpus->size() != count) return std::vector<int>(count, 0);
  std::string of_a_task = variable("SLURM_CPUS_PER_TASK" + suffix);
  if (of_a_task.empty()) of_a_task = variable("SLURM_CPUS_PER_TASK");
  const auto divisor = parse_int(of_a_task);
  if (divisor && *divisor > 1) {
    for (int& each : *cpus) each = static_cast<int>(each / *divisor);
  }
  return *cpus;
}

// Returns whether the user requested a number of tasks. The number of a step does not count as a request, because a
// shell or a launcher is one of its tasks. Slurm's default sets only SLURM_TASKS_PER_NODE.
bool AllocationFinder::are_tasks_asked(const std::string& suffix) const {
  if (is_in_plain_step(sources_.variable)) {
    return parse_int(variable("SLURM_NTASKS_PER_NODE" + suffix)).value_or(1) > 1;
  }
  for (const char* name : {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"}) {
    if (!variable(name + suffix).empty()) return true;
  }
  return false;
}

// Returns a node as a host. Without -np and --slots-per-host, its slots are the requested tasks, else its GPUs, else
// Slurm's tasks. An explicit -np may use all resources of the node.
Host AllocationFinder::slurm_host(const std::string& name, int tasks, bool are_asked, int gpus,
                                  int cpus) const {
  Host host{name, "", tasks};
  if (sources_.slots_per_host) {
    host.slots = *sources_.slots_per_host;
    return host;
  }
  if (!sources_.device.empty()) {
    host.slots = gpus > 0 || cpus > 0 ? ranks_for(sources_.device, gpus, cpus) : tasks;
    return host;
  }
  if (!are_asked && !sources_.has_num_proc && gpus > 0) host.slots = gpus;
  if (gpus == 0 && cpus == 0) return host;
  const int most = std::max({tasks, gpus, cpus});
  if (most > host.slots) host.max_slots = most;
  const auto counted = [](int count, const char* what) {
    return cat(count, " ", what, count == 1 ? "" : "s");
  };
  host.offered = counted(tasks, "task");
  if (gpus > 0) host.offered += ", " + counted(gpus, "GPU");
  if (cpus > 0) host.offered += cat(", CPUs for ", counted(cpus, "task"));
  return host;
}

Status AllocationFinder::add_slurm_group(HostList& hosts, const std::string& suffix,
                                         const std::vector<SlurmNode>& nodes) const {
  HVD_ASSIGN_OR_RETURN(const auto names, slurm_node_names(sources_.variable, suffix));
  std::vector<int> gpus;
  for (const std::string& name : names) {
    const auto node = std::find_if(nodes.begin(), nodes.end(),
                                   [&](const SlurmNode& each) { return each.name == name; });
    gpus.push_back(node == nodes.end() ? 0 : node->gpus);
  }
  const bool are_tasks_needed = !sources_.slots_per_host && sources_.device.empty() &&
                                std::find(gpus.begin(), gpus.end(), 0) != gpus.end();
  HVD_ASSIGN_OR_RETURN(const auto tasks, slurm_tasks(suffix, names.size(), are_tasks_needed));
  const auto cpus = slurm_cpus(suffix, names.size());
  const bool are_asked = are_tasks_asked(suffix);
  for (size_t i = 0; i < names.size(); ++i) {
    if (hosts.has(names[i])) {
      return invalid_argument(cat("node ", names[i],
                                  " is in two components of the heterogeneous job; ",
                                  "request components on different nodes, or name hosts with -H"));
    }
    HVD_RETURN_IF_ERROR(hosts.add(slurm_host(names[i], tasks[i], are_asked, gpus[i], cpus[i])));
  }
  return {};
}

Found AllocationFinder::slurm() const {
  const std::string job = variable("SLURM_JOB_ID");
  const bool is_one =
      !variable("SLURM_JOB_NODELIST").empty() || !variable("SLURM_NODELIST").empty();
  if (!is_one && variable("SLURM_HET_SIZE").empty()) return slurm_by_number();
  HVD_ASSIGN_OR_RETURN(const auto suffixes, slurm_suffixes(sources_.variable));
  HostList hosts;
  const std::vector<SlurmNode> nodes = sources_.slurm_nodes().value_or(std::vector<SlurmNode>());
  for (const std::string& suffix : suffixes) {
    HVD_RETURN_IF_ERROR(add_slurm_group(hosts, suffix, nodes));
  }
  Found slurm = found(cat("Slurm job ", printable(job)), hosts);
  if (slurm.ok()) (*slurm)->counts_devices = !sources_.device.empty();
  return slurm;
}

// Finds the hosts of a job with a number but without a list of hosts, for example SLURM_JOB_ID=10 on a login node.
Found AllocationFinder::slurm_by_number() const {
  const std::string job = variable("SLURM_JOB_ID");
  if (job.empty()) return std::optional<Allocation>();
  const std::string source = cat("Slurm job ", printable(job));
  const auto nodes = sources_.slurm_nodes();
  if (!nodes.ok()) {
    return without_hosts(source,
                         cat("SLURM_JOB_NODELIST is not set, and ", nodes.status().message()));
  }
  HostList hosts;
  for (const SlurmNode& node : *nodes) {
    HVD_RETURN_IF_ERROR(
        hosts.add(slurm_host(node.name, slots_alone_, false, node.gpus, node.cpus)));
  }
  return found(source, hosts);
}

Found AllocationFinder::lsf() const {
  const std::string job = variable("LSB_JOBID");
  if (job.empty()) return std::optional<Allocation>();
  const std::string source = cat("LSF job ", printable(job));
  HostList hosts;
  // If CSM assigns the compute hosts, the first host is the host that runs the job's script.
  bool skip_first = !variable("CSM_ALLOCATION_ID").empty();
  const auto add = [&](std::string_view name, int slots) {
    if (std::exchange(skip_first, false)) return Status();
    return add_named(hosts, name, slots);
  };
  if (const std::string counts = variable("LSB_MCPU_HOSTS"); !counts.empty()) {
    const auto words = words_of(counts);
    Status status;
    for (size_t i = 0; status.ok() && i + 1 < words.size(); i += 2) {
      const auto slots = parse_slots(words[i + 1]);
      status = slots.ok() ? add(words[i], *slots) : slots.status();
    }
    if (words.size() % 2 != 0) status = invalid_argument("a host has no number of slots");
    if (!status.ok()) return status.with_context("LSB_MCPU_HOSTS");
    return found(source, hosts);
  }
  if (const std::string names = variable("LSB_HOSTS"); !names.empty()) {
    for (const std::string_view name : words_of(names)) {
      if (Status status = add(name, 1); !status.ok()) return status.with_context("LSB_HOSTS");
    }
    return found(source, hosts);
  }
  return from_file(source, "LSB_DJOB_HOSTFILE", Count::kByLines, true);
}

Found AllocationFinder::from_file(std::string source, const std::string& variable_name, Count count,
                                  bool has_id) const {
  const std::string path = variable(variable_name);
  if (path.empty() && has_id) return without_hosts(source, cat(variable_name, " is not set"));
  if (path.empty()) return std::optional<Allocation>();
  const auto text = sources_.file(path);
  if (!text) return not_found(cat(variable_name, ": there is no file ", printable(path)));
  if (!text->ok()) return text->status().with_context(variable_name);
  HostList hosts;
  std::string_view rest = **text;
  for (int number = 1; !rest.empty(); ++number) {
    const auto words = words_of(take_line(rest));
    if (words.empty()) continue;
    Result<int> slots = count == Count::kNone ? slots_alone_ : 1;
    if (count == Count::kBySecondWord) {
      slots = words.size() > 1 ? parse_slots(words[1])
                               : Result<int>(invalid_argument("the number of slots is missing"));
    }
    const Status status = slots.ok() ? add_named(hosts, words[0], *slots) : slots.status();
    if (!status.ok()) {
      return status.with_context(cat(variable_name, ": ", printable(path), ", line ", number));
    }
  }
  return found(std::move(source), hosts);
}

Found AllocationFinder::pbs() const {
  const std::string job = variable("PBS_JOBID");
  return from_file(cat("PBS job ", printable(job)), "PBS_NODEFILE", Count::kByLines, !job.empty());
}

Found AllocationFinder::sge() const {
  const std::string job = variable("JOB_ID");
  const std::string source = cat("SGE job ", printable(job));
  // Other programs set JOB_ID too. A job on one host needs no list of hosts.
  const bool is_number_alone =
      parse_int(job) && !variable("SGE_ROOT").empty() && variable("NHOSTS") != "1";
  if (!variable("PE_HOSTFILE").empty() || !is_number_alone)
    return from_file(source, "PE_HOSTFILE", Count::kBySecondWord, false);
  auto hosts = sources_.sge_hosts(job);
  if (hosts.ok()) return std::optional(Allocation{.source = source, .hosts = *std::move(hosts)});
  return without_hosts(source, cat("PE_HOSTFILE is not set, and ", hosts.status().message()));
}

Found AllocationFinder::oar() const {
  const std::string job = variable("OAR_JOB_ID");
  return from_file(cat("OAR job ", printable(job)), "OAR_NODEFILE", Count::kByLines, !job.empty());
}

Found AllocationFinder::cobalt() const {
  const std::string job = variable("COBALT_JOBID");
  return from_file(cat("Cobalt job ", printable(job)), "COBALT_NODEFILE", Count::kNone,
                   !job.empty());
}

// Volcano's plugin `svc` gives each pod of a job a variable VC_TASK_HOSTS for each task; its plugin
// `env` gives the pod's number in its task.
Found AllocationFinder::volcano() const {
  std::map<std::string, std::vector<std::string>> tasks;  // hosts by variable
  const std::string self = variable("HOSTNAME");
  std::string own;  // the variable of this pod's task
  for (const auto& [name, value] : sources_.variables()) {
    if (!names_hosts_of_task(name)) continue;
    auto& hosts = tasks[name];
    for (const std::string& part : split(value, ',')) {
      const std::string host(trim(part));
      if (host.empty()) continue;
      if (host.substr(0, host.find('.')) == self.substr(0, self.find('.'))) own = name;
      hosts.push_back(host);
    }
  }
  if (tasks.empty()) return std::optional<Allocation>();
  const std::string index = variable("VC_TASK_INDEX");
  if (!own.empty() && tasks[own].size() > 1 && !index.empty() && index != "0") {
    return failed_precondition(cat(
        "VC_TASK_INDEX=", printable(index),
        ": each pod of this Volcano task starts horovodrun; "
        "start it in the pod with index 0 alone, and sshd in the others, or name hosts with -H"));
  }
  // The task of this pod starts the job. If other tasks exist, only they run the job.
  if (tasks.size() > 1) tasks.erase(own);
  HostList hosts;
  for (const auto& [name, names] : tasks) {
    for (const std::string& host : names) {
      if (Status status = add_named(hosts, host, slots_alone_); !status.ok()) {
        return status.with_context(name);
      }
    }
  }
  return found("Volcano", hosts);
}

Found AllocationFinder::kubernetes() const {
  const auto text = sources_.file(kOperatorHostfile);
  if (!text) return std::optional<Allocation>();
  if (!text->ok()) return text->status();
  HVD_ASSIGN_OR_RETURN(Hostfile file, parse_hostfile(**text, kOperatorHostfile, slots_alone_));
  return std::optional(Allocation{
      .source = "the MPI Operator", .hosts = std::move(file.hosts), .warnings = file.warnings});
}

// A launcher that starts several copies of a program, and the variables that it sets in each copy.
struct CopyCommand {
  const char *name, *rank, *size, *once;
};
constexpr CopyCommand kCopiers[] = {
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun -n1"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "horovodrun --mpi"},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "horovodrun --mpi"},
};

// Returns whether srun --pty has started a shell, from which the user starts the program: the terminal belongs to the
// first task. The variables of PMI then come from srun --mpi=pmi2, unless hydra has set MPI_LOCALRANKID.
bool is_of_shell(const CopyCommand& copy_command, const Variables& variable) {
  if (!variable("SLURM_PTY_PORT") || variable("SLURM_PROCID") != "0") return false;
  const std::string_view rank(copy_command.rank);
  return rank == "SLURM_PROCID" || (rank == "PMI_RANK" && !variable("MPI_LOCALRANKID"));
}

}  // namespace

Status refuse_copies(const Variables& variable) {
  for (const CopyCommand& copy_command : kCopiers) {
    const auto copies = parse_int(trim(variable(copy_command.size).value_or("")));
    if (!copies || *copies < 2 || !variable(copy_command.rank)) continue;
    if (is_of_shell(copy_command, variable)) continue;
    return failed_precondition(cat(copy_command.name, " has started horovodrun ", *copies,
                                   " times; start it once, by ", copy_command.once, " or without ",
                                   copy_command.name));
  }
  return {};
}

Result<std::vector<int>> parse_repeated_counts(std::string_view text) {
  std::vector<int> counts;
  for (const std::string& part : split(text, ',')) {
    std::string_view word = trim(part);
    int64_t times = 1;
    if (const size_t open = word.find("(x"); open != std::string_view::npos) {
      const auto number = word.ends_with(')')
                              ? parse_int(word.substr(open + 2, word.size() - open - 3))
                              : std::nullopt;
      if (!number || *number < 1 || *number > static_cast<int64_t>(kMaxNames)) {
        return invalid_argument(cat("'", printable(word), "' is not a count such as 4(x2)"));
      }
      times = *number;
      word = word.substr(0, open);
    }
    HVD_ASSIGN_OR_RETURN(const int slots, parse_slots(word));
    if (counts.size() + static_cast<size_t>(times) > kMaxNames) {
      return invalid_argument(cat("it names more than ", kMaxNames, " hosts"));
    }
    counts.insert(counts.end(), static_cast<size_t>(times), slots);
  }
  return counts;
}

Found find_allocation(const AllocationSources& sources) {
  HVD_RETURN_IF_ERROR(refuse_copies(sources.variable));
  const AllocationFinder finder(sources);
  for (const auto find : {&AllocationFinder::slurm, &AllocationFinder::lsf, &AllocationFinder::pbs,
                          &AllocationFinder::sge, &AllocationFinder::oar, &AllocationFinder::cobalt,
                          &AllocationFinder::volcano, &AllocationFinder::kubernetes}) {
    Found allocation = (finder.*find)();
    if (!allocation.ok() || *allocation) return allocation;
  }
  return std::optional<Allocation>();
}

}  // namespace hvd::launcher
