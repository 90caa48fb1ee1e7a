#include "launcher/mpirun/arguments.h"

#include "base/text.h"

namespace hvd::launcher {
namespace {

using Arguments = std::vector<std::string>;

constexpr int64_t kMostOfANode = 1 << 20;

// Returns the number after "name:" on the first line that begins so.
std::optional<int> number_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    std::string_view line = trim(take_line(text));
    if (!line.starts_with(name)) continue;
    line = trim(line.substr(name.size()));
    if (!line.starts_with(':')) continue;
    const auto number = parse_int(trim(line.substr(1)));
    if (number && *number >= 0 && *number <= kMostOfANode) return static_cast<int>(*number);
  }
  return {};
}

Result<int> needed(std::string_view program, std::string_view text, std::string_view name) {
  if (const auto number = number_of(text, name)) return *number;
  return invalid_argument(
      cat(program, " prints no number of ", name, ", which --jsrun needs; give --binding-args"));
}

}  // namespace

std::optional<MpiFlavour> flavour_of(std::string_view version_output) {
  const auto contains = [&](std::string_view words) {
    return version_output.find(words) != std::string_view::npos;
  };
  if (contains("Open MPI") || contains("OpenRTE")) return MpiFlavour::kOpenMpi;
  if (contains("IBM Spectrum MPI")) return MpiFlavour::kSpectrum;
  if (contains("MPICH") || contains("HYDRA")) return MpiFlavour::kMpich;
  if (contains("Intel(R) MPI")) return MpiFlavour::kIntel;
  return {};
}

const char* name_of(MpiFlavour flavour) {
  switch (flavour) {
    case MpiFlavour::kOpenMpi:
      return "Open MPI";
    case MpiFlavour::kSpectrum:
      return "Spectrum MPI";
    case MpiFlavour::kMpich:
      return "MPICH";
    case MpiFlavour::kIntel:
      return "Intel MPI";
  }
  return "";
}

namespace {

constexpr const char* kForAgents[] = {
    "listen",     "token_file",   "token_fd",     "max_restarts",    "spares",
    "stage",      "remote_init",  "launch_agent", "ssh_command",     "timeout",
    "on_failure", "end_signal",   "stdin",        "only_rank",       "fold",
    "tag",        "log_format",   "no_env",       "no_torch_env",    "insecure_compat",
    "ship",       "stage_env",    "stage_dir",    "allow_build",     "hang_warning",
    "on_hang",    "on_straggler", "preflight",    "preflight_action"};

void append(Arguments& words, const Arguments& more) {
  words.insert(words.end(), more.begin(), more.end());
}

std::string flag_of(const char* key) { return split(setting(key).flags, ',').back(); }

bool is_hydra(MpiFlavour flavour) {
  return flavour == MpiFlavour::kMpich || flavour == MpiFlavour::kIntel;
}

Status check_host(const Host& host) {
  if (!host.user.empty()) {
    return invalid_argument(cat("mpirun takes no user in ", printable(host.user + "@" + host.name),
                                "; write -H ", printable(host.name),
                                " and name the user in ~/.ssh/config"));
  }
  if (host.port != 0) {
    return invalid_argument(cat("mpirun takes no port of one host, as in port=", host.port, " of ",
                                printable(host.name), "; set Port in ~/.ssh/config"));
  }
  if (host.name.find(':') == std::string::npos) return {};
  return invalid_argument(cat("mpirun takes no address with colons, such as ", printable(host.name),
                              "; give the host's name to -H"));
}

Result<Arguments> host_arguments(MpiFlavour flavour, const SlotPlan& plan) {
  Arguments with_slots;
  Arguments names;
  for (const Host& host : plan.hosts) {
    HVD_RETURN_IF_ERROR(check_host(host));
    with_slots.push_back(cat(host.name, ":", host.slots));
    names.push_back(host.name);
  }
  if (!is_hydra(flavour)) return Arguments{"-H", join(with_slots, ",")};
  const Host& first = plan.hosts.front();
  for (const Host& host : plan.hosts) {
    if (host.slots == first.slots) continue;
    if (flavour == MpiFlavour::kMpich) return Arguments{"-hosts", join(with_slots, ",")};
    return invalid_argument(cat(
        "Intel MPI's mpirun needs the same number of slots on each host, and ", first.name, " has ",
        first.slots, ", ", host.name, " ", host.slots, "; give -H the same number for all"));
  }
  return Arguments{"-ppn", cat(first.slots), "-hosts", join(names, ",")};
}

Result<Arguments> binding_arguments(MpiFlavour flavour, const LaunchSettings& settings) {
  if (settings.launchers.binding_args.has_value()) {
    if (!is_hydra(flavour)) return words_of_flag(settings, "binding_args");
    return invalid_argument(cat("--binding-args is for Open MPI and Spectrum MPI, and mpirun is ",
                                name_of(flavour), "'s; write what binds into --mpi-args"));
  }
  switch (flavour) {
    case MpiFlavour::kOpenMpi:
    case MpiFlavour::kMpich:
      return Arguments{"-bind-to", "none", "-map-by", "slot"};
    case MpiFlavour::kSpectrum:
      return Arguments{"-bind-to", "socket", "-map-by", "socket", "-rank-by", "core"};
    case MpiFlavour::kIntel:
      break;
  }
  return Arguments{};
}

// Returns the arguments that only this MPI has.
Result<Arguments> own_arguments(MpiFlavour flavour, const LaunchSettings& settings, size_t hosts) {
  Arguments words;
  if (flavour == MpiFlavour::kOpenMpi) words = {"-mca", "pml", "ob1", "-mca", "btl", "^openib"};
  if (flavour == MpiFlavour::kSpectrum && settings.libraries.tcp) words = {"-tcp"};
  if (!is_hydra(flavour)) append(words, many_hosts_arguments(hosts));
  if (!settings.output.prefix_timestamp) return words;
  if (is_hydra(flavour)) {
    return invalid_argument(cat(name_of(flavour),
                                "'s mpirun puts no times before lines; leave out ",
                                flag_of("prefix_timestamp")));
  }
  words.push_back("--timestamp-output");
  return words;
}

Arguments ssh_arguments(MpiFlavour flavour, const LaunchSettings& settings) {
  Arguments ssh;
  if (settings.ssh.port.has_value()) append(ssh, {"-p", cat(settings.ssh.port.value_or(0))});
  if (settings.ssh.identity_file.has_value())
    append(ssh, {"-i", settings.ssh.identity_file.value_or("")});
  if (ssh.empty()) return {};
  if (is_hydra(flavour)) return {"-bootstrap=ssh", "-bootstrap-exec-args", join(ssh, " ")};
  return {"-mca", "plm_rsh_args", join(ssh, " ")};
}

// Returns the arguments that select the network interfaces. For exclusions and prefixes of names, the ranks read their
// environment instead.
Result<Arguments> network_arguments(MpiFlavour flavour, const LaunchSettings& settings) {
  const std::string given = settings.network.network_interfaces;
  if (given.empty() || given.find_first_of("^*") != std::string::npos) return Arguments{};
  Arguments interfaces;
  for (const std::string& each : split(given, ',')) interfaces.emplace_back(trim(each));
  const std::string list = join(interfaces, ",");
  const bool are_names = list.find('/') == std::string::npos;
  const std::string of_nccl = "NCCL_SOCKET_IFNAME=" + list;
  if (!is_hydra(flavour)) {
    Arguments words = {"-mca", "btl_tcp_if_include", list};
    if (are_names) append(words, {"-x", of_nccl});
    return words;
  }
  if (!are_names) return Arguments{};
  if (interfaces.size() > 1) {
    return invalid_argument(cat(name_of(flavour), "'s mpirun takes one interface, and ",
                                flag_of("network_interfaces"), " names ", list, "; name one"));
  }
  return Arguments{"-iface", list, "-genv", of_nccl};
}

}  // namespace

std::vector<std::string> many_hosts_arguments(size_t hosts) {
  if (hosts < kManyHosts) return {};
  return {"-mca", "plm_rsh_no_tree_spawn", "true", "-mca", "plm_rsh_num_concurrent", cat(hosts)};
}

Result<std::vector<std::string>> words_of_flag(const LaunchSettings& settings, const char* key) {
  auto words = shell_words(settings.table().text(key));
  if (!words.ok()) return words.status().with_context(flag_of(key));
  return words;
}

Status check_flags_without_agents(const LaunchSettings& settings) {
  if (settings.job.store_fd.has_value()) {
    return invalid_argument(
        "horovod.run has its ranks started by this launcher's own agents; leave "
        "out use_mpi");
  }
  for (const Setting& each : all_settings()) {
    const auto is_it = [&](std::string_view key) { return key == each.key; };
    // Accept binding settings that have their default values: mpirun binds nothing either.
    const bool binds = std::string_view(each.section) == "binding" &&
                       settings.table().text(each.key) != cat(each.default_value);
    const bool is_for_agents = binds || std::ranges::any_of(kForAgents, is_it);
    if (!is_for_agents || !settings.table().is_set(each.key)) continue;
    const char* with = settings.launchers.jsrun ? "--jsrun" : "--mpi";
    return invalid_argument(cat(flag_of(each.key),
                                " is for ranks that this launcher's own agents start; "
                                "omit it or ",
                                with));
  }
  return {};
}

Result<std::vector<std::string>> mpirun_arguments(MpiFlavour flavour, const Options& options,
                                                  const SlotPlan& plan,
                                                  const std::vector<std::string>& exported) {
  const LaunchSettings& settings = options.settings;
  HVD_RETURN_IF_ERROR(check_flags_without_agents(settings));
  Arguments words = {"mpirun"};
  append(words,
         is_hydra(flavour) ? Arguments{"-l"} : Arguments{"--allow-run-as-root", "--tag-output"});
  append(words, {"-np", cat(plan.size())});
  HVD_ASSIGN_OR_RETURN(const Arguments hosts, host_arguments(flavour, plan));
  append(words, hosts);
  HVD_ASSIGN_OR_RETURN(const Arguments binding, binding_arguments(flavour, settings));
  append(words, binding);
  HVD_ASSIGN_OR_RETURN(const Arguments own, own_arguments(flavour, settings, plan.hosts.size()));
  append(words, own);
  append(words, ssh_arguments(flavour, settings));
  HVD_ASSIGN_OR_RETURN(const Arguments network, network_arguments(flavour, settings));
  append(words, network);
  if (settings.output.output_filename.has_value()) {
    append(words, {is_hydra(flavour) ? "-outfile-pattern" : "--output-filename",
                   settings.output.output_filename.value_or("")});
  }
  if (settings.job.wdir.has_value()) append(words, {"-wdir", settings.job.wdir.value_or("")});
  if (!is_hydra(flavour)) {  // other MPIs pass on all of mpirun's environment
    for (const std::string& name : exported) append(words, {"-x", name});
  }
  HVD_ASSIGN_OR_RETURN(const Arguments extra, words_of_flag(settings, "mpi_args"));
  append(words, extra);
  // Slurm's variables describe the tasks of a step. These tasks are mpirun's daemons, and not the ranks.
  if (environment_variable("SLURM_JOB_ID"))
    append(words, {"env", "-u", "SLURM_NTASKS", "-u", "SLURM_PROCID"});
  append(words, options.command);
  return words;
}

namespace {

// Returns whether the text begins with a backslash that escapes the next character. `quote`: the open quote, or 0.
bool is_escape(std::string_view text, char quote) {
  if (text.size() < 2 || text[0] != '\\' || quote == '\'') return false;
  return quote == '\0' || text[1] == '"' || text[1] == '\\';
}

}  // namespace

Result<std::vector<std::string>> shell_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool is_in_word = false;
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    const char each = text[i];
    if (is_escape(text.substr(i), quote)) {
      word += text[++i];
      is_in_word = true;
    } else if (quote != '\0') {
      if (each == quote) {
        quote = '\0';
      } else {
        word += each;
      }
    } else if (each == '\'' || each == '"') {
      quote = each;
      is_in_word = true;
    } else if (each == ' ' || each == '\t' || each == '\n') {
      if (is_in_word) words.push_back(std::move(word));
      word.clear();
      is_in_word = false;
    } else {
      word += each;
      is_in_word = true;
    }
  }
  if (quote != '\0') {
    return invalid_argument(cat("a quote ", quote, " is not closed in ", printable(text)));
  }
  if (is_in_word) words.push_back(std::move(word));
  return words;
}

Result<LsfNode> parse_lsf_node(std::string_view allocation, std::string_view attributes,
                               std::string_view lscpu) {
  constexpr char kAttributes[] = "csm_node_attributes_query";
  LsfNode node;
  HVD_ASSIGN_OR_RETURN(const int all, needed(kAttributes, attributes, "discovered_cores"));
  HVD_ASSIGN_OR_RETURN(const int sockets, needed(kAttributes, attributes, "discovered_sockets"));
  HVD_ASSIGN_OR_RETURN(node.gpus, needed(kAttributes, attributes, "discovered_gpus"));
  HVD_ASSIGN_OR_RETURN(const int isolated,
                       needed("csm_allocation_query", allocation, "isolated_cores"));
  HVD_ASSIGN_OR_RETURN(node.threads_per_core, needed("lscpu", lscpu, "Thread(s) per core"));
  const int64_t cores = all - static_cast<int64_t>(sockets) * isolated;
  if (cores < 1 || node.gpus < 1 || node.threads_per_core < 1) {
    return invalid_argument(cat("--jsrun places ranks by cores and GPUs, and the job's nodes have ",
                                cores, " and ", node.gpus, "; give --binding-args"));
  }
  node.cores = static_cast<int>(cores);
  return node;
}

Result<std::string> rankfile(const SlotPlan& plan, const LsfNode& node) {
  const int64_t share = static_cast<int64_t>(node.cores) * node.threads_per_core / node.gpus;
  std::string text = "overlapping_rs: allow\ncpu_index_using: logical\n";
  for (const Slot& slot : plan.slots) {
    const std::string& host = plan.hosts[static_cast<size_t>(slot.host)].name;
    if (slot.local_size > node.gpus) {
      return invalid_argument(cat("host ", host, " has ", node.gpus, " GPUs for ", slot.local_size,
                                  " ranks; give it fewer slots in -H, or give --binding-args"));
    }
    if (slot.local_rank == 0) text += "\n";
    text += cat("rank: ", slot.rank, ": { hostname: ", host, "; cpu: {", slot.local_rank * share,
                "-", (slot.local_rank + 1) * share - 1, "} ; gpu: * ; mem: * }\n");
  }
  return text;
}

Result<std::vector<std::string>> jsrun_arguments(const Options& options, size_t hosts,
                                                 const std::string& rankfile_path) {
  const LaunchSettings& settings = options.settings;
  HVD_RETURN_IF_ERROR(check_flags_without_agents(settings));
  Arguments words = {"jsrun"};
  Arguments binding = {"--erf_input", rankfile_path};
  if (settings.launchers.binding_args.has_value()) {
    HVD_ASSIGN_OR_RETURN(binding, words_of_flag(settings, "binding_args"));
  }
  words.insert(words.end(), binding.begin(), binding.end());
  if (settings.output.output_filename.has_value()) {
    const std::string path = settings.output.output_filename.value_or("");
    for (const char* flag : {"--stdio_stderr", "--stdio_stdout"}) {
      words.insert(words.end(), {flag, path});
    }
  }
  if (settings.job.wdir.has_value())
    words.insert(words.end(), {"--chdir", settings.job.wdir.value_or("")});
  Arguments of_mpi;
  if (settings.libraries.tcp) of_mpi.push_back("-tcp");
  for (std::string& word : many_hosts_arguments(hosts)) of_mpi.push_back(std::move(word));
  if (settings.launchers.mpi_args.has_value())
    of_mpi.push_back(settings.launchers.mpi_args.value_or(""));
  if (!of_mpi.empty()) words.insert(words.end(), {"--smpiargs", join(of_mpi, " ")});
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

}  // namespace hvd::launcher
