#include "launcher/allocation/host_choice.h"

#include <unistd.h>

#include <optional>

#include "base/check.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/log/log.h"
#include "base/text.h"
#include "launcher/allocation/allocation.h"
#include "launcher/allocation/slurm_nodes.h"
#include "launcher/plan/text_file.h"
#include "launcher/spawn/local_program.h"

namespace hvd::launcher {
namespace {

constexpr double kQstatSeconds = 10;

// Returns "5" for "<slots>5</slots>".
std::optional<std::string_view> element_of(std::string_view line, std::string_view tag) {
  const std::string begin = cat("<", tag, ">"), end = cat("</", tag, ">");
  if (!line.starts_with(begin) || !line.ends_with(end)) return std::nullopt;
  return line.substr(begin.size(), line.size() - begin.size() - end.size());
}

}  // namespace

Result<std::vector<Host>> parse_sge_hosts(std::string_view text, std::string_view job) {
  const std::string words = printable(one_line(text.substr(0, 300)));
  HostList hosts;
  std::string_view host;
  bool is_answer = false, is_it = false;
  while (!text.empty()) {
    const std::string_view line = trim(take_line(text));
    is_answer = is_answer || line.starts_with("<job_info");
    if (const auto queue = element_of(line, "name")) host = queue->substr(queue->find('@') + 1);
    if (const auto number = element_of(line, "JB_job_number")) is_it = *number == job;
    if (is_it && element_of(line, "tasks"))
      return failed_precondition("it is an array, whose tasks have hosts of their own");
    const auto count = element_of(line, "slots");
    if (!is_it || !count) continue;
    HVD_RETURN_IF_ERROR(check_host_name(host));
    HVD_ASSIGN_OR_RETURN(const int slots, parse_slots(*count));
    HVD_RETURN_IF_ERROR(hosts.add({std::string(host), "", slots}));
  }
  if (!is_answer) return unavailable(cat("qstat printed ", words.empty() ? "nothing" : words));
  HVD_ASSIGN_OR_RETURN(auto all, hosts.take());
  if (all.empty()) return not_found("qstat lists no running job of yours with that number");
  return all;
}

Result<std::vector<Host>> read_sge_hosts(const std::string& job) {
  HVD_ASSIGN_OR_RETURN(const std::string text, output_of({"qstat", "-f", "-ne", "-s", "r", "-xml"},
                                                         Deadline::after_seconds(kQstatSeconds)));
  return parse_sge_hosts(text, job);
}

namespace {

Result<std::optional<Allocation>> allocation(const LaunchSettings& settings) {
  AllocationSources sources;
  sources.slurm_nodes = [] { return read_slurm_nodes(slurm_job_id()); };
  sources.sge_hosts = read_sge_hosts;
  sources.has_num_proc = settings.job.num_proc.has_value();
  if (settings.hosts.slots_per_host.is_set) {
    sources.slots_per_host = settings.hosts.slots_per_host.value;
  }
  sources.device = settings.hosts.slots_by;
  sources.variable = environment_variable;
  sources.variables = environment;
  sources.file = [](const std::string& path) -> std::optional<Result<std::string>> {
    if (::access(path.c_str(), F_OK) != 0) return {};
    return read_text_file(path, "the list of hosts");
  };
  return find_allocation(sources);
}

// Warns that Flux names the hosts of a job only by a command, not in a variable.
void warn_about_flux(const LaunchSettings& settings) {
  if (settings.identity.job.has_value() || !environment_variable("FLUX_URI")) return;
  if (!environment_variable("FLUX_JOB_ID") && !environment_variable("FLUX_ENCLOSING_ID")) return;
  log::warning(
      "in a job of Flux, all ranks run on this machine unless -H names its hosts; "
      "write -H \"$(flux hostlist local)\"");
}

int slots_of_this_host(const std::string& device) {
  const int gpus = visible_gpus(count_gpus(), environment_variable("CUDA_VISIBLE_DEVICES"));
  return ranks_for(device, gpus, available_cores());
}

Result<std::vector<Host>> hosts_of_file(const std::string& path, int slots_alone) {
  HVD_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "hostfile"));
  HVD_ASSIGN_OR_RETURN(Hostfile file,
                       parse_hostfile(text, path == "-" ? "standard input" : path, slots_alone));
  for (const std::string& warning : file.warnings) log::warning(warning);
  return std::move(file.hosts);
}

Result<std::optional<std::vector<Host>>> allocated_hosts(const LaunchSettings& settings) {
  HVD_ASSIGN_OR_RETURN(auto found, allocation(settings));
  if (!found) return std::optional<std::vector<Host>>();
  for (const std::string& warning : found->warnings) log::warning(warning);
  if (found->hosts.empty()) return std::optional<std::vector<Host>>();
  if (!settings.hosts.slots_by.empty() && !found->counts_devices) {
    for (Host& host : found->hosts) host.slots = kUnknownSlots;
  }
  return std::optional(std::move(found->hosts));
}

Result<std::vector<Host>> this_host(const LaunchSettings& settings) {
  const std::string device = settings.hosts.slots_by;
  if (!device.empty()) return std::vector<Host>{{"localhost", "", slots_of_this_host(device)}};
  const std::string local = settings.job.num_proc.has_value() ? "num_proc" : "slots_per_host";
  if (!settings.table().is_set(local)) {
    return invalid_argument(
        "give the number of ranks with -np N, or the hosts with -H or -hostfile");
  }
  const auto slots = settings.table().integer(local);
  if (slots > kMaxSlotsPerHost) {
    return invalid_argument(cat("-np ", slots, " is more than the ", kMaxSlotsPerHost,
                                " ranks that one host may have; name more hosts with -H"));
  }
  return std::vector<Host>{{"localhost", "", static_cast<int>(slots)}};
}

Result<std::vector<Host>> all_hosts(const LaunchSettings& settings) {
  const int slots_alone =
      settings.hosts.slots_by.empty() ? settings.hosts.slots_per_host.value : kUnknownSlots;
  const bool is_launched = settings.identity.job.has_value();
  if (!is_launched) HVD_RETURN_IF_ERROR(refuse_copies(environment_variable));
  if (settings.hosts.list.has_value()) {
    auto hosts = parse_hosts(settings.hosts.list.value_or(""), slots_alone);
    if (!hosts.ok()) return hosts.status().with_context("-H");
    return hosts;
  }
  if (settings.hosts.hostfile.has_value()) {
    return hosts_of_file(settings.hosts.hostfile.value_or(""), slots_alone);
  }
  if (!is_launched) {
    HVD_ASSIGN_OR_RETURN(auto hosts, allocated_hosts(settings));
    if (hosts) return *std::move(hosts);
  }
  warn_about_flux(settings);
  return this_host(settings);
}

// Refuses a host with port= if the user's command lacks {port}: the command would use the wrong port.
Status check_ports(const std::vector<Host>& hosts, const LaunchSettings& settings) {
  for (const auto& [key, flag] :
       {std::pair("launch_agent", "--launch-agent"), std::pair("ssh_command", "--ssh-command")}) {
    if (!settings.table().is_set(key) ||
        settings.table().text(key).find("{port}") != std::string::npos)
      continue;
    for (const Host& host : hosts) {
      if (host.port == 0) continue;
      return invalid_argument(cat("host ", host.name, " has port=", host.port,
                                  ", and the command of ", flag, " has no {port}; write ",
                                  "-p {port} into the command, or remove port= from the hostfile"));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Host>> choose_hosts(const LaunchSettings& settings) {
  HVD_ASSIGN_OR_RETURN(std::vector<Host> hosts, all_hosts(settings));
  HVD_RETURN_IF_ERROR(check_ports(hosts, settings));
  if (!settings.hosts.nnodes.has_value()) return hosts;
  const auto wanted = static_cast<size_t>(settings.hosts.nnodes.value_or(0));
  if (wanted > hosts.size()) {
    return invalid_argument(cat("--nnodes ", wanted, " is more than the ", hosts.size(),
                                hosts.size() == 1 ? " host" : " hosts",
                                " there are; name more with -H"));
  }
  hosts.resize(wanted);
  return hosts;
}

bool has_allocation(const LaunchSettings& settings) {
  const auto found = allocation(settings);
  return !found.ok() || (found->has_value() && !(*found)->hosts.empty());
}

}  // namespace hvd::launcher
