#include "launcher/plan/worker_env.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <span>
#include <sstream>

#include "base/secrets/secret.h"
#include "base/text.h"
#include "horovod/version.h"
#include "launcher/protocol/other_launchers.h"

namespace hvd::launcher {
namespace {

using Patterns = std::span<const std::string_view>;

// Variables that the launcher or its agent sets for each rank.
constexpr std::array<std::string_view, 33> kOwn = {"HOROVOD_RANK",
                                                   "HOROVOD_SIZE",
                                                   "HOROVOD_LOCAL_RANK",
                                                   "HOROVOD_LOCAL_SIZE",
                                                   "HOROVOD_CROSS_RANK",
                                                   "HOROVOD_CROSS_SIZE",
                                                   "HOROVOD_HOSTNAME",
                                                   "HOROVOD_JOB_ID",
                                                   "HOROVOD_GENERATION",
                                                   "HOROVOD_ELASTIC",
                                                   "HOROVOD_ELASTIC_PROCESS",
                                                   "HOROVOD_LAUNCHER_VERSION",
                                                   "HOROVOD_JOB_SECRET",
                                                   "HOROVOD_RESULT_KEY",
                                                   "HOROVOD_STORE",
                                                   "HOROVOD_METRICS_PAGE",
                                                   "HOROVOD_BOUND_CPUS",
                                                   "HOROVOD_NUMA_NODE",
                                                   "HOROVOD_START_TIMEOUT",
                                                   "HOROVOD_GLOO_RENDEZVOUS_ADDR",
                                                   "HOROVOD_GLOO_RENDEZVOUS_PORT",
                                                   "_HOROVOD_SECRET_KEY",
                                                   "HOROVOD_INTERFACE",
                                                   "RANK",
                                                   "WORLD_SIZE",
                                                   "LOCAL_RANK",
                                                   "LOCAL_WORLD_SIZE",
                                                   "GROUP_RANK",
                                                   "MASTER_ADDR",
                                                   "MASTER_PORT",
                                                   "JAX_COORDINATOR_ADDRESS",
                                                   "JAX_NUM_PROCESSES",
                                                   "JAX_PROCESS_ID"};

constexpr std::array<std::string_view, 7> kTorch = {
    "RANK",       "WORLD_SIZE",  "LOCAL_RANK", "LOCAL_WORLD_SIZE",
    "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"};

// Variables that have no meaning, or another one, on another machine.
constexpr std::array<std::string_view, 41> kLocalOnly = {"HOME",
                                                         "USER",
                                                         "LOGNAME",
                                                         "SHELL",
                                                         "PWD",
                                                         "OLDPWD",
                                                         "HOSTNAME",
                                                         "HOST",
                                                         "TMPDIR",
                                                         "TMP",
                                                         "TEMP",
                                                         "XDG_*",
                                                         "SSH_*",
                                                         "DISPLAY",
                                                         "WAYLAND_DISPLAY",
                                                         "XAUTHORITY",
                                                         "BASH_FUNC_*",
                                                         "BASH_ENV",
                                                         "ENV",
                                                         "SHLVL",
                                                         "_",
                                                         "MAIL",
                                                         "WINDOWID",
                                                         "COLUMNS",
                                                         "LINES",
                                                         "TTY",
                                                         "TMUX*",
                                                         "STY",
                                                         "DBUS_SESSION_BUS_ADDRESS",
                                                         "GPG_AGENT_INFO",
                                                         "INVOCATION_ID",
                                                         "JOURNAL_STREAM",
                                                         "GPU_DEVICE_ORDINAL",
                                                         "ZE_AFFINITY_MASK",
                                                         "SLURM_JOB_GPUS",
                                                         "SLURM_STEP_GPUS",
                                                         "SLURM_GPUS_ON_NODE",
                                                         "SLURM_SHARDS_ON_NODE",
                                                         "SLURM_CPUS_ON_NODE",
                                                         "SLURM_TOPOLOGY_ADDR*",
                                                         "SLURMD_NODENAME"};

bool matches(std::string_view name, Patterns patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](std::string_view pattern) { return fits(name, pattern); });
}

bool is_local_only(std::string_view name) {
  return name.ends_with("_VISIBLE_DEVICES") || matches(name, kLocalOnly);
}

}  // namespace

// The number of a job is odd, because 0 means "no job".
JobIdentity random_job() { return {random_number() | 1, Secret::random()}; }

JobIdentity joined_job(const Secret& token, uint32_t generation) {
  const uint64_t number = random_number() | 1;
  const Digest key = token.derive(cat("horovod job 1 ", job_name(number), " ", generation));
  return {number, *Secret::from_bytes(key)};
}

bool is_set_by_launcher(std::string_view name, bool torch) {
  return matches(name, kOwn) && (torch || !matches(name, kTorch));
}

Environment host_environment(const Environment& inherited, bool is_local) {
  Environment environment;
  const auto outer = std::find_if(inherited.begin(), inherited.end(), [](const auto& variable) {
    return variable.first == "HOROVOD_INTERFACE";
  });
  for (const auto& [name, value] : inherited) {
    if (matches(name, kOwn) || is_of_other_launcher(name)) continue;
    // Keep the user's value, but not a value that an outer job found for its own hosts.
    const bool is_hint = name == "GLOO_SOCKET_IFNAME" || name == "TP_SOCKET_IFNAME";
    if (is_hint && outer != inherited.end() && value == outer->second) continue;
    if (!is_local && is_local_only(name)) continue;
    environment.emplace_back(name, value);
  }
  return environment;
}

Environment slot_environment(const Slot& slot, const std::string& host, int size) {
  return {
      {"HOROVOD_RANK", cat(slot.rank)},
      {"HOROVOD_SIZE", cat(size)},
      {"HOROVOD_LOCAL_RANK", cat(slot.local_rank)},
      {"HOROVOD_LOCAL_SIZE", cat(slot.local_size)},
      {"HOROVOD_CROSS_RANK", cat(slot.cross_rank)},
      {"HOROVOD_CROSS_SIZE", cat(slot.cross_size)},
      {"HOROVOD_HOSTNAME", host},
      // For programs of torchrun, DeepSpeed and JAX. The start adds MASTER_ADDR and MASTER_PORT.
      {"RANK", cat(slot.rank)},
      {"WORLD_SIZE", cat(size)},
      {"LOCAL_RANK", cat(slot.local_rank)},
      {"LOCAL_WORLD_SIZE", cat(slot.local_size)},
      {"GROUP_RANK", cat(slot.host)},
      {"JAX_PROCESS_ID", cat(slot.rank)},
      {"JAX_NUM_PROCESSES", cat(size)}};
}

namespace {

// Returns the numbers in Slurm's format: "2(x3),1".
std::string tasks_per_node(const std::vector<int>& tasks) {
  std::string text;
  for (size_t i = 0, next = 0; i < tasks.size(); i = next) {
    while (next < tasks.size() && tasks[next] == tasks[i]) ++next;
    text += cat(text.empty() ? "" : ",", tasks[i], next - i > 1 ? cat("(x", next - i, ")") : "");
  }
  return text;
}

}  // namespace

Environment slurm_environment(const SlotPlan& plan, const Slot& slot) {
  std::vector<int> tasks(plan.hosts.size());
  std::string nodes, own_ranks;
  for (const Host& host : plan.hosts) nodes += cat(nodes.empty() ? "" : ",", host.name);
  for (const Slot& each : plan.slots) {
    ++tasks[static_cast<size_t>(each.host)];
    if (each.host == slot.host) own_ranks += cat(own_ranks.empty() ? "" : ",", each.rank);
  }
  const std::string count = cat(plan.hosts.size()), size = cat(plan.size());
  Environment environment = {{"SLURM_PROCID", cat(slot.rank)},
                             {"SLURM_LOCALID", cat(slot.local_rank)},
                             {"SLURM_NODEID", cat(slot.host)},
                             {"SLURM_GTIDS", own_ranks},
                             {"SLURM_STEPID", "0"},
                             {"SLURM_TASK_PID", "0"},  // start_ranks() replaces the value
                             {"SLURM_NTASKS", size},
                             {"SLURM_NPROCS", size},
                             {"SLURM_NNODES", count},
                             {"SLURM_JOB_NUM_NODES", count},
                             {"SLURM_STEP_NUM_NODES", count},
                             {"SLURM_STEP_NODELIST", nodes},
                             {"SLURM_STEP_TASKS_PER_NODE", tasks_per_node(tasks)}};
  if (std::ranges::count(tasks, tasks[0]) == std::ssize(tasks))
    environment.emplace_back("SLURM_NTASKS_PER_NODE", cat(tasks[0]));
  return environment;
}

void remove_torch_variables(Environment& environment) {
  std::erase_if(environment, [](const auto& variable) { return matches(variable.first, kTorch); });
}

Environment job_environment(const JobEnvironment& job) {
  Environment environment = {{"HOROVOD_GENERATION", cat(job.generation)},
                             {"HOROVOD_LAUNCHER_VERSION", HVD_VERSION},
                             {"HOROVOD_START_TIMEOUT", cat(job.start_timeout)},
                             {"PYTHONUNBUFFERED", "1"}};
  if (job.job != 0) environment.emplace_back("HOROVOD_JOB_ID", job_name(job.job));
  if (!job.secret.empty()) environment.emplace_back("HOROVOD_JOB_SECRET", job.secret);
  return environment;
}

Environment flag_environment(const LaunchSettings& settings) {
  Environment environment;
  for (const Setting& setting : all_settings()) {
    const std::string_view variable = setting.variable;
    if (setting.flags[0] == '\0' || variable.empty() || matches(variable, kOwn)) continue;
    if (!settings.table().is_set(setting.key)) continue;
    // All readers of a flag's variable accept 1 and 0.
    environment.emplace_back(variable, setting.type == SettingType::kFlag
                                           ? (settings.table().flag(setting.key) ? "1" : "0")
                                           : settings.table().text(setting.key));
  }
  if (settings.libraries.tcp) environment.emplace_back("NCCL_IB_DISABLE", "1");
  return environment;
}

std::string job_name(uint64_t job) {
  std::ostringstream text;
  text << std::hex << std::setw(16) << std::setfill('0') << job;
  return text.str();
}

}  // namespace hvd::launcher
