// Detects the MPI implementation of an mpirun, and builds its command line. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/cli/options.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {

enum class MpiFlavour { kOpenMpi, kSpectrum, kMpich, kIntel };

// By the output of `mpirun --version`; nothing for one that is not known.
std::optional<MpiFlavour> flavour_of(std::string_view version_output);

// "Open MPI".
const char* name_of(MpiFlavour flavour);

// From how many hosts on Open MPI's ssh connections are made all at once, and not as a tree.
constexpr size_t kManyHosts = 64;

// `exported`: the names of the variables that ranks on other hosts get. An error is a sentence that
// names a flag, or a host, of which this mpirun makes nothing.
Result<std::vector<std::string>> mpirun_arguments(MpiFlavour flavour, const Options& options,
                                                  const SlotPlan& plan,
                                                  const std::vector<std::string>& exported);

// Open MPI's way to many hosts; Spectrum MPI and its jsrun have it, too.
std::vector<std::string> many_hosts_arguments(size_t hosts);

// An error names a flag that only this launcher's own agents understand.
Status check_flags_without_agents(const LaunchSettings& settings);

// A flag's value as words.
Result<std::vector<std::string>> words_of_flag(const LaunchSettings& settings, const char* key);

// Splits text into words as /bin/sh does, with blanks, quotes and backslashes, and expands nothing.
// An error says which quote is not closed.
Result<std::vector<std::string>> shell_words(std::string_view text);

}  // namespace hvd::launcher
