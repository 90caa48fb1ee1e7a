#include "launcher/allocation/launch_method.h"

#include <netdb.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log/log.h"
#include "base/text.h"
#include "net/asio.h"
#include "net/interfaces.h"
#include "net/socket_address.h"

namespace hvd::launcher {
namespace {

// In seconds. Slurm takes half a minute to detect a lost node, and the link uses Slurm's network.
constexpr double kInStep = 12;
// An elastic job continues without a lost host, so it waits for less time.
constexpr double kInElasticJob = 3;

double host_timeout(const LaunchSettings& settings, bool is_step) {
  if (settings.end.host_timeout.is_set) return settings.end.host_timeout.value;
  if (is_elastic(settings)) return kInElasticJob;
  // For compatibility, --lease alone sets both limits.
  if (settings.end.lease.is_set) return settings.end.lease.value;
  return is_step ? kInStep : settings.end.host_timeout.value;
}

}  // namespace

SilenceLimits silence_limits(const LaunchSettings& settings, bool is_step) {
  return {.host_timeout_seconds = host_timeout(settings, is_step),
          .lease_seconds = settings.end.lease.value};
}

namespace {

// Variables by which srun finds the job. Any other Slurm variable, except those of SPANK plugins, is a request of the
// job or of the site, and would change the step.
constexpr std::string_view kOfTheJob[] = {
    "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTER_NAME", "SLURM_WORKING_CLUSTER",
    "SLURM_JWT",  "SLURM_NETWORK",     "SLURM_NODE_ALIASES", "SLURM_JOB_ID",
    "SLURM_JOBID"};

bool is_request(std::string_view name) {
  if (name.starts_with("SRUN_")) return true;
  if (!name.starts_with("SLURM_") || name.starts_with("SLURM_SPANK_")) return false;
  return std::find(std::begin(kOfTheJob), std::end(kOfTheJob), name) == std::end(kOfTheJob);
}

// Runs in the step before the agent: keeps only those variables of the step that describe the node. Ranks get all other
// variables from the launcher. Must not contain single quotes.
constexpr std::string_view kKeepsOfTheNode =
    "for hv in $(env | sed -n \"s/^\\(SLURMD*_[A-Za-z0-9_]*\\)=.*/\\1/p\"); do case $hv in "
    "(SLURM_STEP_GPUS|SLURM_GPUS_ON_NODE|SLURM_SHARDS_ON_NODE|SLURM_CPUS_ON_NODE|"
    "SLURM_TOPOLOGY_ADDR*|SLURMD_NODENAME|SLURM_CONF|SLURM_CLUSTER_NAME|SLURM_JOB_ID|SLURM_JOBID) "
    ";; (*) unset $hv;; esac; done; "
    "[ -z \"$SLURM_STEP_GPUS\" ] || export SLURM_JOB_GPUS=$SLURM_STEP_GPUS; exec \"$@\"";

bool is_on_path(const char* program) {
  for (const std::string& folder : split(environment_variable("PATH").value_or(""), ':')) {
    if (!folder.empty() && ::access(cat(folder, "/", program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// The MPI Operator's script. The kubectl in it does not forward standard input.
constexpr std::string_view kKubexec = "/kubexec.sh";

// Returns the command, changed so that the operator's script runs `kubectl exec -i`.
std::string with_input(const std::string& command) {
  const std::string script = command.substr(0, command.find(' '));
  if (!script.ends_with(kKubexec)) return command;
  return cat("/bin/sh -c \"$(sed 's/kubectl exec /&-i /' ", script, ")\" ", command);
}

std::string command_of(const LaunchSettings& settings) {
  if (settings.ssh.launch_agent.has_value())
    return with_input(settings.ssh.launch_agent.value_or(""));
  if (settings.ssh.command.has_value()) {
    std::string command = settings.ssh.command.value_or("");
    if (settings.ssh.port.has_value()) command += cat(" -p ", settings.ssh.port.value_or(0));
    if (settings.ssh.identity_file.has_value()) {
      command += " -i " + shell_quote(settings.ssh.identity_file.value_or(""));
    }
    return command;
  }
  const std::string script = environment_variable("OMPI_MCA_plm_rsh_agent").value_or("");
  return script.ends_with(kKubexec) ? with_input(script) : "";
}

// Returns whether no variable and no flag names hosts: the hosts of a Slurm job then come from scontrol.
bool names_no_hosts(const LaunchSettings& settings) {
  for (const char* name : {"SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_HET_SIZE"}) {
    if (environment_variable(name)) return false;
  }
  return !settings.hosts.list.has_value() && !settings.hosts.hostfile.has_value() &&
         !settings.elastic.host_discovery_script.has_value();
}

// Returns the job whose steps start agents. Tests that simulate an allocation set its hosts and SLURM_JOB_ID, but not
// SLURM_CLUSTER_NAME.
std::string job_with_steps(const LaunchSettings& settings) {
  if (settings.ssh.port.has_value() || settings.ssh.identity_file.has_value()) return {};
  if (!environment_variable("SLURM_CLUSTER_NAME") && !names_no_hosts(settings)) return {};
  if (!is_on_path("srun")) return {};
  return slurm_job_id();
}

std::string_view first_label(std::string_view name) { return name.substr(0, name.find('.')); }

// Returns an address in its canonical form (IPv4 for an IPv4-mapped IPv6 address); nullopt for a name.
std::optional<std::string> address_in(const std::string& text) {
  net::error_code error;
  const auto address = net::asio::ip::make_address(text, error);
  if (error) return {};
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address.to_string();
  return net::asio::ip::make_address_v4(net::asio::ip::v4_mapped, address.to_v6()).to_string();
}

// Adds the addresses of this machine's interfaces: a machine's own name may resolve only to a loopback address.
void add_own_addresses(size_t node, std::map<std::string, size_t>& addresses) {
  const auto own = net::interface_addresses();
  if (!own.ok()) return;
  for (const net::InterfaceAddress& each : *own) {
    const std::string text = net::address_text(each.bytes);
    if (const auto address = address_in(text)) addresses.emplace(*address, node);
  }
}

// Returns the node of each address; omits nodes that cannot be resolved.
std::map<std::string, size_t> addresses_of(const std::vector<SlurmNode>& nodes) {
  std::map<std::string, size_t> addresses;
  const std::string own_node = environment_variable("SLURMD_NODENAME").value_or("");
  for (size_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].name == own_node) add_own_addresses(node, addresses);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(nodes[node].name.c_str(), nullptr, &hints, &found) != 0) continue;
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
      char text[NI_MAXHOST];
      if (::getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof text, nullptr, 0,
                        NI_NUMERICHOST) != 0) {
        continue;
      }
      if (const auto address = address_in(text)) addresses.emplace(*address, node);
    }
    ::freeaddrinfo(found);
  }
  return addresses;
}

bool is_own_user(const std::string& user) {
  if (user.empty()) return true;
  const passwd* self = ::getpwuid(::geteuid());
  return self != nullptr && user == self->pw_name;
}

std::vector<std::string> requests_in_environment() {
  std::vector<std::string> names;
  for (const auto& [name, value] : environment()) {
    if (is_request(name)) names.push_back(name);
  }
  return names;
}

}  // namespace

LaunchMethods::LaunchMethods(const LaunchSettings& settings, bool is_in_step)
    : settings_(settings), command_(command_of(settings)), is_in_step_(is_in_step) {
  if (!command_.empty()) return;
  job_ = job_with_steps(settings);
  if (job_.empty()) return;
  removed_variables_ = requests_in_environment();
  auto nodes = read_slurm_nodes(job_);
  if (nodes.ok()) {
    nodes_ = *std::move(nodes);
    return;
  }
  if (names_no_hosts(settings)) {
    // choose_hosts() explains this to the user, and uses this machine.
    job_.clear();
    return;
  }
  log::warning(cat("Slurm's generic resources of each node are unknown (", nodes.status().message(),
                   "): steps get those that srun gives them"));
  nodes = slurm_nodes_in(environment_variable);
  if (nodes.ok()) nodes_ = *std::move(nodes);  // choose_hosts() reports the error
}

LaunchMethods::LaunchMethods(const LaunchSettings& settings, std::string job,
                             std::vector<SlurmNode> nodes, std::vector<std::string> variables,
                             bool is_in_step)
    : settings_(settings),
      job_(std::move(job)),
      nodes_(std::move(nodes)),
      removed_variables_(std::move(variables)),
      is_in_step_(is_in_step) {
  std::erase_if(removed_variables_, [](const std::string& name) { return !is_request(name); });
}

LaunchMethod LaunchMethods::of(const Host& host) const {
  LaunchMethod method;
  method.command = command_;
  method.silence = silence_limits(settings_, false);
  const SlurmNode* node = node_of(host);
  if (node == nullptr) return method;
  method.command = step_on(*node);
  method.is_step = true;
  // A step has only its own GPUs, while ranks on other nodes have all GPUs of the job on their node.
  method.may_be_local = !is_in_step_;
  method.silence = silence_limits(settings_, true);
  return method;
}

SilenceLimits LaunchMethods::silence() const { return silence_limits(settings_, !nodes_.empty()); }

std::string LaunchMethods::question_about(const Host& host) const {
  if (!may_be_node(host) || node_of(host) != nullptr) return {};
  return "exec scontrol show job -d " + shell_quote(job_);
}

void LaunchMethods::take_answer(std::string_view text) {
  auto nodes = parse_slurm_nodes(text, job_);
  if (!nodes.ok() || nodes->empty()) return;
  nodes_ = *std::move(nodes);
  addresses_.reset();
}

bool LaunchMethods::may_be_node(const Host& host) const {
  return !job_.empty() && host.port == 0 && is_own_user(host.user);
}

// Finds a node by its name, by the first label of its name, or by one of its addresses.
const SlurmNode* LaunchMethods::node_of(const Host& host) const {
  if (!may_be_node(host)) return nullptr;
  for (const SlurmNode& node : nodes_) {
    if (node.name == host.name) return &node;
  }
  if (const auto address = address_in(host.name)) {
    if (!addresses_) addresses_ = addresses_of(nodes_);
    const auto found = addresses_->find(*address);
    return found == addresses_->end() ? nullptr : &nodes_[found->second];
  }
  for (const SlurmNode& node : nodes_) {
    if (first_label(node.name) == first_label(host.name)) return &node;
  }
  return nullptr;
}

std::string LaunchMethods::step_on(const SlurmNode& node) const {
  std::string command = "env";
  for (const std::string& name : removed_variables_) command += cat(" -u ", shell_quote(name));
  command += cat(" SLURM_JOB_ID=", shell_quote(job_), " SLURM_JOBID=", shell_quote(job_),
                 " srun --overlap --whole --mem=0 --mpi=none --cpu-bind=none --nodes=1 --ntasks=1");
  if (node.component >= 0) command += cat(" --het-group=", node.component);
  if (!node.resources.empty()) command += cat(" --gres=", shell_quote(node.resources));
  return command + cat(" --nodelist=", shell_quote(node.name),
                       " --chdir=/ --export=ALL --unbuffered --quiet /bin/sh -c '", kKeepsOfTheNode,
                       "' {host}");
}

}  // namespace hvd::launcher
