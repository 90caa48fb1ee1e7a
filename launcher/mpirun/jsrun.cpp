#include "launcher/mpirun/jsrun.h"

#include "base/text.h"
#include "launcher/mpirun/arguments.h"

namespace hvd::launcher {
namespace {

using Arguments = std::vector<std::string>;

constexpr int64_t kMostOfANode = 1 << 20;

// Returns the number after "name:" at the beginning of a line.
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
