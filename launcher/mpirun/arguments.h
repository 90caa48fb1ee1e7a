// Detects the MPI implementation of an mpirun, and builds its command line. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/plan/launch_options.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

enum class MpiFlavour { kOpenMpi, kSpectrum, kMpich, kIntel };

// Detects the implementation by the output of `mpirun --version`; empty if unknown.
std::optional<MpiFlavour> flavour_of(std::string_view version_output);

// Returns a name like "Open MPI".
const char* name_of(MpiFlavour flavour);

// From this number of hosts on, Open MPI opens its ssh connections all at once, not as a tree.
constexpr size_t kManyHosts = 64;

// `exported`: the names of the variables for ranks on other hosts. An error names a flag or host that this mpirun does
// not support.
Result<std::vector<std::string>> mpirun_arguments(MpiFlavour flavour, const Options& options,
                                                  const SlotPlan& plan,
                                                  const std::vector<std::string>& exported);

// Returns Open MPI's arguments for many hosts, also for Spectrum MPI and its jsrun.
std::vector<std::string> many_hosts_arguments(size_t hosts);

// Returns an error with the name of a flag that needs this launcher's agents.
Status check_flags_without_agents(const LaunchSettings& settings);

// Splits a flag's value into words.
Result<std::vector<std::string>> words_of_flag(const LaunchSettings& settings, const char* key);

// Splits text into words at blanks as /bin/sh does, with quotes and backslashes but without expansions. An error names
// the unclosed quote.
Result<std::vector<std::string>> shell_words(std::string_view text);

}  // namespace hvd::launcher
