#include "launcher/plan/host_choice.h"

#include <unistd.h>

#include "base/check.h"
#include "base/text.h"
#include "launcher/plan/allocation.h"
#include "launcher/plan/hostfile.h"
#include "launcher/plan/text_file.h"

namespace hvd::launcher {
namespace {

Result<std::optional<Allocation>> allocation(int slots_alone) {
  AllocationSources sources;
  sources.variable = environment_variable;
  sources.variables = environment;
  sources.file = [](const std::string& path) -> std::optional<Result<std::string>> {
    if (::access(path.c_str(), F_OK) != 0) return {};
    return read_text_file(path, "the list of hosts");
  };
  return find_allocation(sources, slots_alone);
}

Result<std::vector<Host>> all_hosts(const Settings& settings) {
  const auto slots_alone = static_cast<int>(settings.integer("slots_per_host"));
  if (!settings.is_set("job")) HVD_RETURN_IF_ERROR(refuse_copies(environment_variable));
  if (settings.is_set("hosts")) {
    auto hosts = parse_hosts(settings.text("hosts"), slots_alone);
    if (!hosts.ok()) return hosts.status().with_context("-H");
    return hosts;
  }
  if (settings.is_set("hostfile")) {
    const std::string path = settings.text("hostfile");
    HVD_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "hostfile"));
    return parse_hostfile(text, path == "-" ? "standard input" : path, slots_alone);
  }
  if (!settings.is_set("job")) {
    HVD_ASSIGN_OR_RETURN(const auto found, allocation(slots_alone));
    if (found) return found->hosts;
  }
  const std::string local = settings.is_set("num_proc") ? "num_proc" : "slots_per_host";
  if (settings.is_set(local)) {
    return std::vector<Host>{{"localhost", "", static_cast<int>(settings.integer(local))}};
  }
  return invalid_argument(
      "say how many ranks to start, with -np N, or where, with -H or -hostfile");
}

bool is_on_path(const char* program) {
  for (const std::string& folder : split(environment_variable("PATH").value_or(""), ':')) {
    if (!folder.empty() && ::access(cat(folder, "/", program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// In an allocation of Slurm, whose limits and accounting hold for what its own steps start: a step of
// one task beside the others, with all that the job has on that node, and without the variables by
// which programs would take themselves for that task. Empty elsewhere.
std::string slurm_step(const Settings& settings) {
  const bool is_named = settings.is_set("hosts") || settings.is_set("hostfile");
  // The last of these nobody sets by hand who only wants to name hosts.
  if (is_named || !environment_variable("SLURM_JOB_ID") ||
      !environment_variable("SLURM_CLUSTER_NAME") || !is_on_path("srun")) {
    return {};
  }
  std::string command =
      "srun --overlap --whole --mem=0 --cpu-bind=none --nodes=1 --ntasks=1 --ntasks-per-node=1 "
      "--nodelist={host} --chdir=/ --export=ALL --unbuffered --quiet env";
  for (const char* variable :
       {"PROCID", "LOCALID", "NODEID", "GTIDS", "TASK_PID", "STEPID", "STEP_ID", "STEP_NUM_TASKS",
        "STEP_NUM_NODES", "STEP_NODELIST", "STEP_TASKS_PER_NODE", "STEP_LAUNCHER_PORT",
        "LAUNCH_NODE_IPADDR", "SRUN_COMM_HOST", "SRUN_COMM_PORT"}) {
    command += cat(" -u SLURM_", variable);
  }
  return command;
}

// The MPI Operator's script, whose kubectl passes no standard input on.
constexpr std::string_view kKubexec = "/kubexec.sh";

// The command, with the operator's script run as if it said `kubectl exec -i`.
std::string with_input(const std::string& command) {
  const std::string script = command.substr(0, command.find(' '));
  if (!script.ends_with(kKubexec)) return command;
  return cat("/bin/sh -c \"$(sed 's/kubectl exec /&-i /' ", script, ")\" ", command);
}

}  // namespace

Result<std::vector<Host>> choose_hosts(const Settings& settings) {
  HVD_ASSIGN_OR_RETURN(std::vector<Host> hosts, all_hosts(settings));
  if (!settings.is_set("nnodes")) return hosts;
  const auto wanted = static_cast<size_t>(settings.integer("nnodes"));
  if (wanted > hosts.size()) {
    return invalid_argument(cat("--nnodes ", wanted, " is more than the ", hosts.size(),
                                hosts.size() == 1 ? " host" : " hosts",
                                " there are; name more with -H"));
  }
  hosts.resize(wanted);
  return hosts;
}

std::string launch_agent(const Settings& settings) {
  if (settings.is_set("launch_agent")) return with_input(settings.text("launch_agent"));
  if (settings.is_set("ssh_command")) {
    std::string command = settings.text("ssh_command");
    if (settings.is_set("ssh_port")) command += cat(" -p ", settings.integer("ssh_port"));
    if (settings.is_set("ssh_identity_file")) {
      command += " -i " + shell_quote(settings.text("ssh_identity_file"));
    }
    return command;
  }
  if (std::string step = slurm_step(settings); !step.empty()) return step;
  const std::string script = environment_variable("OMPI_MCA_plm_rsh_agent").value_or("");
  return script.ends_with(kKubexec) ? with_input(script) : "";
}

double lease_of(const Settings& settings) {
  constexpr double kInStep = 12;
  const double lease = settings.number("lease");
  return settings.is_set("lease") || slurm_step(settings).empty() ? lease : kInStep;
}

}  // namespace hvd::launcher
