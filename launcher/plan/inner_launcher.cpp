#include "launcher/plan/inner_launcher.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/settings.h"
#include "base/text.h"
#include "launcher/program/command_file.h"

namespace hvd::launcher {
namespace {

using Words = std::vector<std::string>;

// A program that runs the command behind its own words.
struct Wrapper {
  const char* name;
  const char* flags;  // those whose values are words of their own, separated by commas
  int operands;       // the number of its other words
};
constexpr Wrapper kWrappers[] = {
    {"env", "-u,--unset,-C,--chdir", 0},
    {"nice", "-n,--adjustment", 0},
    {"numactl", "-N,-m,-C,-i,-p,--cpunodebind,--membind,--physcpubind,--interleave,--preferred", 0},
    {"taskset", "", 1},
    {"uv", "--with,-p,--python,--project,--directory,--extra,--group,--package,--env-file,--index",
     1}};

struct Launcher {
  const char* name;
  const char* word;        // behind the name
  const char* processes;   // flags of its number of processes
  const char* counts;      // flags of its number of hosts
  const char* nodes;       // flags that name hosts, or a place where they meet
  const char* rendezvous;  // other flags by which the user connects hosts
  const char* switches;    // flags without a value
};
constexpr char kTorchrun[] = "torchrun";
constexpr Launcher kLaunchers[] = {
    {kTorchrun, "", "--nproc-per-node", "--nnodes", "--rdzv-endpoint,--node-rank",
     "--standalone,--rdzv-backend,--rdzv-id,--rdzv-conf,--master-addr,--master-port",
     "--standalone,-m,--module,--no-python,--run-path,--use-env,--virtual-local-rank"},
    {"accelerate", "launch", "--num-processes", "--num-machines",
     "--config-file,--machine-rank,--main-process-ip", "",
     "-m,--module,--no-python,--cpu,--multi-gpu,--multi-cpu,--use-deepspeed,--use-fsdp,--debug"},
    {"deepspeed", "", "--num-gpus,--num-accelerators", "--num-nodes",
     "-H,--hostfile,-i,--include,-e,--exclude,--node-rank", "",
     "-m,--module,--no-python,--no-local-rank,--force-multi,--no-ssh,--bind-cores-to-rank"},
    {"horovodrun", "", "-np,--num-proc,-n,--n,--np", "--nnodes",
     "-H,--hosts,--host,-host,-hosts,-hostfile,--hostfile,--host-discovery-script,--listen", "",
     "--verbose,--gloo,--mpi,--autotune"},
};

// A launcher that the command starts.
struct Inner {
  const Launcher* launcher = nullptr;
  std::string processes;      // "2", "gpu"; empty: not given
  bool names_nodes = false;   // several hosts, or where they meet
  bool is_connected = false;  // by the user, or to no other host
  Words program;              // its own command
};

bool has(const char* list, const std::string& word) {
  return !word.empty() && std::ranges::count(split(list, ','), word) > 0;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The number of words before the program that wrappers run. Adds the assignments of env.
size_t words_of_wrappers(const Words& command, Environment& environment) {
  size_t at = 0;
  while (at < command.size()) {
    const std::string name = file_name(command[at]);
    const auto wrapper = std::ranges::find(kWrappers, name, &Wrapper::name);
    if (wrapper == std::end(kWrappers)) break;
    int operands = wrapper->operands;
    for (++at; at < command.size(); ++at) {
      const std::string& word = command[at];
      const size_t equals = word.find('=');
      if (word.starts_with('-')) {
        if (has(wrapper->flags, word)) ++at;
      } else if (name == "env" && equals != std::string::npos) {
        environment = overlay(environment, {{word.substr(0, equals), word.substr(equals + 1)}});
      } else if (operands-- <= 0) {
        break;
      }
    }
  }
  return std::min(at, command.size());
}

// The name of the program at `at`, with `at` behind it: of a Python, that of its module or script.
std::string take_program(const Words& command, size_t& at) {
  if (at >= command.size()) return {};
  const std::string name = file_name(command[at++]);
  if (!is_python(name)) return name;
  const PythonProgram python = program_of_python(std::span(command).subspan(at));
  const auto behind = std::find_if(
      command.begin() + static_cast<ptrdiff_t>(at), command.end(),
      [&](const std::string& word) { return !python.text.empty() && word.ends_with(python.text); });
  if (behind == command.end()) return {};
  at = static_cast<size_t>(behind - command.begin()) + 1;
  const bool is_torchrun =
      python.text == "torch.distributed.run" || python.text == "torch.distributed.launch";
  return python.kind == PythonProgram::Kind::kModule && is_torchrun ? kTorchrun
                                                                    : file_name(python.text);
}

bool is_one(std::string_view nodes) { return nodes.empty() || nodes == "1" || nodes == "1:1"; }

// A value is no flag, and no script behind a flag whose values are unknown here.
bool is_value(const std::string& word) { return !word.starts_with('-') && !word.ends_with(".py"); }

// The flag at `at`, in its spelling with "-" for "_", and its value; `at` is then at its last word.
std::pair<std::string, std::string> take_flag(const Launcher& launcher, const Words& command,
                                              size_t& at) {
  const size_t equals = command[at].find('=');
  std::string name = command[at].substr(0, equals);
  std::ranges::replace(name, '_', '-');
  if (equals != std::string::npos) return {name, command[at].substr(equals + 1)};
  if (has(launcher.switches, name) || at + 1 == command.size() || !is_value(command[at + 1]))
    return {name, ""};
  return {name, command[++at]};
}

// Reads the launcher's flags and its program, which `python` runs.
void read_flags(const Words& command, size_t at, const std::string& python, Inner& inner) {
  const Launcher& launcher = *inner.launcher;
  bool is_module = false, needs_python = launcher.name != std::string_view("horovodrun");
  for (; at < command.size() && command[at].starts_with('-'); ++at) {
    const auto [name, value] = take_flag(launcher, command, at);
    const bool is_count = has(launcher.counts, name), is_node = has(launcher.nodes, name);
    is_module |= has("-m,--module", name);
    needs_python &= name != "--no-python";
    if (has(launcher.processes, name)) inner.processes = value;
    inner.names_nodes |= is_node || (is_count && !is_one(value));
    inner.is_connected |= is_count || is_node || has(launcher.rendezvous, name);
  }
  if (is_module || needs_python) inner.program.push_back(python);
  if (is_module) inner.program.emplace_back("-m");
  inner.program.insert(inner.program.end(), command.begin() + static_cast<ptrdiff_t>(at),
                       command.end());
}

// Accelerate reads the numbers of processes and hosts there.
bool has_accelerate_file(const Environment& environment) {
  std::string cache(value_of(environment, "XDG_CACHE_HOME"));
  if (cache.empty()) cache = cat(environment_variable("HOME").value_or(""), "/.cache");
  std::string home(value_of(environment, "HF_HOME"));
  if (home.empty()) home = cache + "/huggingface";
  return std::ranges::any_of(std::to_array({"yaml", "json"}), [&](const char* kind) {
    return ::access(cat(home, "/accelerate/default_config.", kind).c_str(), F_OK) == 0;
  });
}

// Reads what the variables of the ranks say of processes and hosts; flags win.
void read_variables(const Environment& environment, Inner& inner) {
  const std::string_view name = inner.launcher->name;
  const std::string_view nodes = value_of(environment, "PET_NNODES");
  if (name == kTorchrun) inner.processes = value_of(environment, "PET_NPROC_PER_NODE");
  inner.names_nodes = !is_one(nodes) ||
                      (name == "accelerate" && has_accelerate_file(environment)) ||
                      to_lower(value_of(environment, "HOROVOD_BOOTSTRAP")) == "none";
  inner.is_connected = inner.names_nodes || !nodes.empty() ||
                       !value_of(environment, "PET_RDZV_ENDPOINT").empty() ||
                       !value_of(environment, "PET_MASTER_ADDR").empty();
}

Inner find_inner(const Words& command, Environment environment) {
  Inner inner;
  size_t at = words_of_wrappers(command, environment);
  inner.program.assign(command.begin(), command.begin() + static_cast<ptrdiff_t>(at));
  const std::string python =
      at < command.size() && is_python(command[at]) ? command[at] : "python3";
  const std::string name = take_program(command, at);
  const auto launcher = std::ranges::find(kLaunchers, name, &Launcher::name);
  if (launcher == std::end(kLaunchers)) return inner;
  if (launcher->word[0] != '\0' && (at >= command.size() || command[at++] != launcher->word))
    return inner;
  inner.launcher = launcher;
  read_variables(environment, inner);
  read_flags(command, at, python, inner);
  return inner;
}

// The number of processes that the launcher is asked for; 0: one for each device.
int64_t processes_of(const Inner& inner) {
  if (has("gpu,auto,cpu", inner.processes)) return 0;
  const int64_t number = parse_int(inner.processes).value_or(1);
  return number < 1 || number > (1 << 16) ? 1 : number;
}

bool is_one_each(const SlotPlan& plan) { return plan.slots.size() == plan.hosts.size(); }

// The flags of a job with these numbers of ranks on the hosts of the plan; 0: one rank for each GPU.
std::string flags_for(const SlotPlan& plan, const std::vector<int64_t>& ranks) {
  constexpr size_t kMostHosts = 4;
  const bool by_gpu = ranks[0] == 0;
  const std::string number =
      by_gpu ? " --slots-per-host gpu"
             : cat(" -np ", std::accumulate(ranks.begin(), ranks.end(), int64_t{0}));
  if (ranks.size() > kMostHosts || (ranks.size() == 1 && plan.hosts[0].name == "localhost"))
    return number;
  std::string list;
  for (size_t host = 0; host < ranks.size(); ++host)
    list += cat(list.empty() ? " -H " : ",", plan.hosts[host].name,
                by_gpu ? "" : cat(":", ranks[host]));
  return by_gpu ? list + number : list;
}

}  // namespace

Status check_inner_launcher(const Words& command, const Environment& environment,
                            const SlotPlan& plan) {
  const Inner inner = find_inner(command, environment);
  if (inner.launcher == nullptr || inner.names_nodes || plan.size() < 2) return {};
  const std::string name = inner.launcher->name;
  if (name == kTorchrun && is_one_each(plan)) return {};
  const int64_t each = processes_of(inner);
  if (each == 1) return {};
  std::vector<int64_t> wanted(plan.hosts.size());
  for (const Slot& slot : plan.slots) wanted[static_cast<size_t>(slot.host)] += each;
  const std::vector<int64_t> one_each(plan.hosts.size(), 1);
  return invalid_argument(cat(
      "each of the ", plan.size(), " ranks would start its own ", name, " with ",
      each == 0 ? cat("one process per ", inner.processes == "cpu" ? "core" : "GPU")
                : cat(each, " processes"),
      ", and these ", plan.size(), " worlds would train apart; leave ", name, " out: horovodrun",
      flags_for(plan, wanted), " ", printable(join(inner.program, " "), 100),
      name == kTorchrun ? cat("; or start one torchrun on each host: horovodrun",
                              flags_for(plan, one_each), " ", printable(join(command, " "), 100))
                        : "",
      "; HOROVOD_BOOTSTRAP=none allows separate runs"));
}

bool joins_torchruns(const Words& command, const Environment& environment, const SlotPlan& plan) {
  if (plan.hosts.size() < 2 || !is_one_each(plan)) return false;
  const Inner inner = find_inner(command, environment);
  return inner.launcher != nullptr && inner.launcher->name == kTorchrun && !inner.is_connected;
}

std::string describe_inner_launcher(const Words& command, const SlotPlan& plan) {
  Environment ignored;
  size_t at = words_of_wrappers(command, ignored);
  const std::string name = take_program(command, at);
  const bool is_of_mpi =
      name.starts_with("mpirun") || name.starts_with("mpiexec") || name == "srun";
  if (!is_of_mpi || plan.size() < 2) return {};
  return cat("each of the ", plan.size(), " ranks starts its own ", name, "; for one job, leave ",
             name, " out, or write horovodrun --mpi");
}

}  // namespace hvd::launcher
