#include "launcher/plan/inner_launcher.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/settings.h"
#include "base/text.h"
#include "launcher/protocol/command_file.h"

namespace hvd::launcher {
namespace {

using Words = std::vector<std::string>;

// A program that runs the command after its own words.
struct Wrapper {
  const char* name;
  const char* flags;  // flags whose value is a separate word, separated by commas
  int operands;       // number of other words before the command
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
  const char* word;       // the word after the name, or empty
  const char* processes;  // flags for its number of processes
  const char* counts;     // flags for the number of hosts
  const char* nodes;      // flags for hosts or a rendezvous endpoint
  const char* alone;      // other flags that connect hosts, or that disconnect them
  const char* values;     // other flags with a value, if the list is complete
  const char* switches;   // flags without a value
};
constexpr char kTorchrun[] = "torchrun";
constexpr char kHorovodrun[] = "horovodrun";
constexpr Launcher kLaunchers[] = {
    {kTorchrun, "", "--nproc-per-node", "--nnodes", "--rdzv-endpoint,--node-rank",
     "--standalone,--master-addr",
     "--rdzv-backend,--rdzv-id,--rdzv-conf,--master-port,--max-restarts,--monitor-interval,"
     "--start-method,--event-log-handler,--role,--log-dir,-r,--redirects,-t,--tee,"
     "--local-ranks-filter,--duplicate-stdout-filters,--duplicate-stderr-filters,--local-rank,"
     "--local-addr,--logs-specs,--numa-binding,--signals-to-handle,--shutdown-timeout",
     "--standalone,-m,--module,--no-python,--run-path,--use-env,--virtual-local-rank"},
    {"accelerate", "launch", "--num-processes", "--num-machines",
     "--config-file,--machine-rank,--main-process-ip", "", "",
     "-m,--module,--no-python,--cpu,--multi-gpu,--multi-cpu,--use-deepspeed,--use-fsdp,--debug,"
     "--quiet,-q,--tpu,--enable-cpu-affinity,--dynamo-use-fullgraph,--dynamo-use-dynamic,"
     "--dynamo-use-regional-compilation,--use-parallelism-config,--use-megatron-lm,--same-network,"
     "--tpu-cluster,--no-tpu-cluster,--tpu-use-sudo,--downcast-bf16,"
     "--fp8-use-autocast-during-eval"},
    {"deepspeed", "", "--num-gpus,--num-accelerators", "--num-nodes",
     "-H,--hostfile,-i,--include,-e,--exclude,--node-rank", "", "",
     "-m,--module,--no-python,--no-local-rank,--force-multi,--no-ssh,--bind-cores-to-rank"},
    // The table of settings contains the other flags of horovodrun.
    {kHorovodrun, "", "-np,--num-proc,-n,--n,--np", "--nnodes",
     "-H,--hosts,--host,-host,-hosts,-hostfile,--hostfile,--host-discovery-script,--listen,"
     "--independent",
     "", "", ""},
};

// A launcher that the command starts.
struct Inner {
  const Launcher* launcher = nullptr;
  std::string processes;      // "2", "gpu"; empty: not given
  bool names_nodes = false;   // several hosts, or a rendezvous endpoint
  bool is_connected = false;  // connected to other launchers by the user, or needs no connection
  std::string backend;        // torchrun's rendezvous backend; empty: not given
  Words program;              // the command that the launcher runs
};

bool has(const char* list, const std::string& word) {
  return !word.empty() && std::ranges::count(split(list, ','), word) > 0;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Returns the number of words of wrappers before the program. Adds the assignments of env to `environment`.
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

// Returns the name of the program at `at`; for a Python, the name of its module or script. Moves `at` behind the word
// with this name.
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

bool is_known(const Launcher& launcher, const std::string& flag) {
  for (const char* list : {launcher.processes, launcher.counts, launcher.nodes, launcher.alone,
                           launcher.values, launcher.switches})
    if (has(list, flag)) return true;
  return false;
}

const Setting* setting_of(const Launcher& launcher, const std::string& flag) {
  if (launcher.name != std::string_view(kHorovodrun)) return nullptr;
  const auto row = std::ranges::find_if(all_settings(), [&](const Setting& each) {
    return has(each.flags, flag) || has(each.aliases, flag) || has(each.off_flag, flag);
  });
  return row == all_settings().end() ? nullptr : &*row;
}

// Returns whether the word after a flag is the flag's value. After an unknown flag, the word may be the program.
bool is_value(const std::string& word, bool is_listed, bool needs_python) {
  if (word.starts_with('-') || word.ends_with(".py")) return false;
  if (is_listed) return true;
  const std::string name = file_name(word);
  return (needs_python || parse_int(word)) && !is_python(word) &&
         std::ranges::find(kWrappers, name, &Wrapper::name) == std::end(kWrappers) &&
         std::ranges::find(kLaunchers, name, &Launcher::name) == std::end(kLaunchers);
}

// Returns the flag at `at`, with '-' in place of '_', and its value. Moves `at` to its last word.
std::pair<std::string, std::string> take_flag(const Launcher& launcher, const Words& command,
                                              size_t& at, bool needs_python) {
  const size_t equals = command[at].find('=');
  std::string name = command[at].substr(0, equals);
  std::ranges::replace(name, '_', '-');
  if (equals != std::string::npos) return {name, command[at].substr(equals + 1)};
  const Setting* setting = setting_of(launcher, name);
  const bool is_switch = setting != nullptr
                             ? setting->type == SettingType::kFlag || has(setting->off_flag, name)
                             : has(launcher.switches, name);
  const bool is_listed = setting != nullptr || is_known(launcher, name);
  if (is_switch || at + 1 == command.size() || !is_value(command[at + 1], is_listed, needs_python))
    return {name, ""};
  return {name, command[++at]};
}

// Parses the launcher's flags and its program. `python`: the module or script that Python runs.
void read_flags(const Words& command, size_t at, const std::string& python, Inner& inner) {
  const Launcher& launcher = *inner.launcher;
  bool is_module = false, needs_python = launcher.name != std::string_view(kHorovodrun);
  for (; at < command.size() && command[at].starts_with('-'); ++at) {
    const auto [name, value] = take_flag(launcher, command, at, needs_python);
    const bool is_count = has(launcher.counts, name), is_node = has(launcher.nodes, name);
    is_module |= has("-m,--module", name);
    needs_python &= name != "--no-python";
    if (has(launcher.processes, name)) inner.processes = value;
    inner.names_nodes |= is_node || (is_count && !is_one(value));
    inner.is_connected |= is_count || is_node || has(launcher.alone, name);
    if (name == "--rdzv-backend") inner.backend = value;
  }
  if (is_module || needs_python) inner.program.push_back(python);
  if (is_module) inner.program.emplace_back("-m");
  inner.program.insert(inner.program.end(), command.begin() + static_cast<ptrdiff_t>(at),
                       command.end());
}

// Returns whether accelerate's default file exists. It gives the numbers of processes and hosts.
bool has_accelerate_file(const Environment& environment) {
  std::string cache(value_of(environment, "XDG_CACHE_HOME"));
  if (cache.empty()) cache = cat(environment_variable("HOME").value_or(""), "/.cache");
  std::string home(value_of(environment, "HF_HOME"));
  if (home.empty()) home = cache + "/huggingface";
  return std::ranges::any_of(std::to_array({"yaml", "json"}), [&](const char* kind) {
    return ::access(cat(home, "/accelerate/default_config.", kind).c_str(), F_OK) == 0;
  });
}

bool allows_separate_runs(const Environment& environment) {
  return to_lower(value_of(environment, "HOROVOD_BOOTSTRAP")) == "none";
}

// Reads the numbers of processes and hosts from the ranks' variables. Flags override them later.
void read_variables(const Environment& environment, Inner& inner) {
  const std::string_view name = inner.launcher->name;
  const std::string_view nodes = value_of(environment, "PET_NNODES");
  if (name == kTorchrun) {
    inner.processes = value_of(environment, "PET_NPROC_PER_NODE");
    inner.backend = value_of(environment, "PET_RDZV_BACKEND");
  }
  inner.names_nodes = !is_one(nodes) ||
                      (name == "accelerate" && has_accelerate_file(environment)) ||
                      allows_separate_runs(environment);
  const auto is_set = [&](const char* variable) {
    const std::string_view value = value_of(environment, variable);
    return !value.empty() && value != "0";
  };
  inner.is_connected = inner.names_nodes || !nodes.empty() ||
                       std::ranges::any_of(std::to_array({"PET_RDZV_ENDPOINT", "PET_MASTER_ADDR",
                                                          "PET_NODE_RANK", "PET_STANDALONE"}),
                                           is_set);
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

// Returns the number of processes that the launcher will start; 0: one for each device.
int64_t processes_of(const Inner& inner) {
  if (has("gpu,auto,cpu", inner.processes)) return 0;
  const int64_t number = parse_int(inner.processes).value_or(1);
  return number < 1 || number > (1 << 16) ? 1 : number;
}

// Returns the flags of a job with these numbers of ranks on the plan's hosts; 0: one rank for each GPU.
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

// Returns whether each host runs one torchrun and nothing connects them.
bool is_unconnected_torchrun(const Inner& inner, const SlotPlan& plan) {
  return inner.launcher != nullptr && inner.launcher->name == std::string_view(kTorchrun) &&
         !inner.is_connected && plan.slots.size() == plan.hosts.size();
}

// Only torchrun's static backend uses PET_MASTER_ADDR; other backends need an endpoint.
bool is_static(const Inner& inner) { return inner.backend.empty() || inner.backend == "static"; }

std::string processes_text(const Inner& inner, int64_t each) {
  if (each != 0) return cat(each, each == 1 ? " process" : " processes");
  return cat("one process per ", inner.processes == "cpu" ? "core" : "GPU");
}

}  // namespace

Status check_inner_launcher(const Words& command, const Environment& environment,
                            const SlotPlan& plan, const std::string& hindrance) {
  const Inner inner = find_inner(command, environment);
  if (inner.launcher == nullptr || inner.names_nodes || plan.size() < 2) return {};
  const std::string name = inner.launcher->name;
  const int64_t each = processes_of(inner);
  const bool is_torchrun = name == kTorchrun;
  const bool is_unconnected = is_unconnected_torchrun(inner, plan);
  const bool lacks_endpoint = is_unconnected && !is_static(inner);
  const bool is_apart = is_torchrun && plan.slots.size() == plan.hosts.size()
                            ? is_unconnected && !hindrance.empty()
                            : true;
  if (!lacks_endpoint && (each == 1 || !is_apart)) return {};
  const std::vector<int64_t> one_each(plan.hosts.size(), 1);
  std::vector<int64_t> wanted(plan.hosts.size());
  for (const Slot& slot : plan.slots) wanted[static_cast<size_t>(slot.host)] += each;
  std::string kept;  // advice how to keep torchrun
  if (lacks_endpoint) {
    kept = cat("; or leave the backend ", printable(inner.backend),
               " out (--rdzv-backend, PET_RDZV_BACKEND), or say where they meet: --nnodes ",
               plan.hosts.size(), " --rdzv-endpoint ", plan.hosts[0].name, ":29400");
  } else if (is_torchrun) {
    kept = cat("; or start one torchrun on each host",
               hindrance.empty() ? "" : cat(", without ", hindrance), ": horovodrun",
               flags_for(plan, one_each), " ", printable(join(command, " "), 100));
  }
  return invalid_argument(cat("each of the ", plan.size(), " ranks would start its own ", name,
                              " with ", processes_text(inner, each), ", and these ", plan.size(),
                              " worlds would train apart; leave ", name, " out: horovodrun",
                              flags_for(plan, wanted), " ",
                              printable(join(inner.program, " "), 100), kept,
                              "; HOROVOD_BOOTSTRAP=none allows separate runs"));
}

bool joins_torchruns(const Words& command, const Environment& environment, const SlotPlan& plan) {
  const Inner inner = find_inner(command, environment);
  return plan.hosts.size() > 1 && is_unconnected_torchrun(inner, plan) && is_static(inner);
}

std::string describe_inner_launcher(const Words& command, const Environment& environment,
                                    const SlotPlan& plan, const std::string& hindrance) {
  Environment all = environment;
  size_t at = words_of_wrappers(command, all);
  if (allows_separate_runs(all)) return {};
  const bool has_hosts = plan.hosts.size() > 1 || hindrance == kElastic;
  if (has_hosts && !hindrance.empty() &&
      is_unconnected_torchrun(find_inner(command, environment), plan))
    return cat("each host starts a torchrun of its own, and torch.distributed does not connect ",
               "them; for one world, leave torchrun out, or start the job without ", hindrance);
  const std::string name = take_program(command, at);
  const bool is_of_mpi =
      name.starts_with("mpirun") || name.starts_with("mpiexec") || name == "srun";
  if (!is_of_mpi || plan.size() < 2) return {};
  return cat("each of the ", plan.size(), " ranks starts its own ", name, "; for one job, leave ",
             name, " out", hindrance == kByMpi ? "" : ", or write horovodrun --mpi");
}

}  // namespace hvd::launcher
