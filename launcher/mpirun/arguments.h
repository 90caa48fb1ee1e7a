// Detects the MPI implementation of an mpirun, and builds its command line. Also builds the command line of LSF's
// jsrun, and jsrun's file with the places of the ranks. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

enum class MpiFlavour { kOpenMpi, kSpectrum, kMpich, kIntel };

// Detects the implementation by the output of `mpirun --version`; empty if unknown.
std::optional<MpiFlavour> flavour_of(std::string_view version_output);

// Returns a name like "Open MPI".
const char* name_of(MpiFlavour flavour);

// From this number of hosts on, the launcher makes Open MPI open all ssh connections at once, not as a tree.
constexpr size_t kManyHosts = 64;

// `exported`: the names of the variables for ranks on other hosts. An error names a flag or host that this mpirun does
// not support.
Result<std::vector<std::string>> mpirun_arguments(MpiFlavour flavour, const Options& options,
                                                  const SlotPlan& plan,
                                                  const std::vector<std::string>& exported);

// Returns Open MPI's arguments for many hosts, also for Spectrum MPI and its jsrun.
std::vector<std::string> many_hosts_arguments(size_t hosts);

// Refuses flags that need this launcher's agents. The error names the flag.
Status check_flags_without_agents(const LaunchSettings& settings);

// Splits a flag's value into words.
Result<std::vector<std::string>> words_of_flag(const LaunchSettings& settings, const char* key);

// Splits text into words at blanks as /bin/sh does, with quotes and backslashes but without expansions. An error names
// the unclosed quote.
Result<std::vector<std::string>> shell_words(std::string_view text);

// Resources of one node of an LSF job.
struct LsfNode {
  int cores = 0;
  int threads_per_core = 1;
  int gpus = 0;
};

// Parses the output of csm_allocation_query, csm_node_attributes_query and lscpu. An error names
// the program and the missing value.
Result<LsfNode> parse_lsf_node(std::string_view allocation, std::string_view attributes,
                               std::string_view lscpu);

// Returns jsrun's "explicit resource file", which gives each rank the processors near its GPU. An error names a host
// with more slots than GPUs.
Result<std::string> rankfile(const SlotPlan& plan, const LsfNode& node);

// Returns jsrun's command line. `rankfile_path`: the path of a file with rankfile(); unused with --binding-args.
// `hosts`: number of hosts.
Result<std::vector<std::string>> jsrun_arguments(const Options& options, size_t hosts,
                                                 const std::string& rankfile_path);

}  // namespace hvd::launcher
