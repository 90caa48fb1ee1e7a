#include "launcher/job/end_report.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/signals.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/observe/rules/changed_variables.h"
#include "launcher/output/traceback.h"
#include "launcher/plan/installation.h"

namespace hvd::launcher {
namespace {

// Returns whether the Python installation at `prefix` has the module among its packages.
bool has_module(const std::filesystem::path& prefix, const std::string& module) {
  std::error_code error;
  for (const char* const place : {"lib", "local/lib"}) {
    for (std::filesystem::directory_iterator at(prefix / place, error), end; !error && at != end;
         at.increment(error)) {
      if (!at->path().filename().string().starts_with("python3")) continue;
      for (const char* const packages : {"site-packages", "dist-packages"}) {
        const std::string path = (at->path() / packages / module).string();
        if (std::filesystem::exists(path, error) || std::filesystem::exists(path + ".py", error))
          return true;
      }
    }
  }
  return false;
}

// Finds a Python on this machine, except `other`, that has the module among its packages; empty if there is none.
// Searches the active environment, the environment of horovodrun, and PATH. Runs no Python.
std::string find_python_with(const std::string& module, const std::string& other) {
  std::vector<std::string> pythons;
  for (const char* const name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const auto prefix = environment_variable(name)) pythons.push_back(*prefix + "/bin/python3");
  }
  pythons.push_back(find_environment_python(executable_folder()));
  for (const std::string& folder : split(environment_variable("PATH").value_or(""), ':'))
    pythons.push_back(folder + "/python3");
  for (const std::string& python : pythons) {
    const bool is_here = python.starts_with('/') && ::access(python.c_str(), X_OK) == 0;
    const auto prefix = std::filesystem::path(python).parent_path().parent_path();
    if (is_here && python != other && has_module(prefix, module)) return python;
  }
  return {};
}

RankContext context_of(int rank, std::string_view words, const Options& options,
                       const HostTable& hosts) {
  const std::string folder = executable_folder();
  RankContext context{.package_folder = find_python_package(folder),
                      .package_python = find_python(folder)};
  // A bare name such as "python3" does not identify an environment.
  if (context.package_python.find('/') == std::string::npos) context.package_python.clear();
  context.interpreter = hosts.rank(rank).host().link()->version_of(kInterpreter);
  if (!options.command.empty()) {
    const std::string& word = options.command.front();
    context.program = word.substr(word.rfind('/') + 1);
  }
  if (const std::string module = missing_module(words); !module.empty())
    context.module_python = find_python_with(module, context.interpreter);
  context.has_environment = !options.settings.job.stage_env.empty();
  context.has_package = options.settings.job.ship.value_or(false);
  context.may_be_original = options.settings.launchers.insecure_compat;
  const std::vector<int> readers = input_readers(options.settings, hosts.size());
  context.lacks_input = !readers.empty() && !std::ranges::binary_search(readers, rank);
  return context;
}

// Returns whether wrong variables of a rank may have caused the exception that ended it.
bool is_about_world(std::string_view exception) {
  const auto has = [&](std::string_view word) {
    return exception.find(word) != std::string_view::npos;
  };
  return has("torch.distributed") || std::ranges::any_of(kWorldVariables, has);
}

// Returns the end of a report about a rank that failed by this exception: the variables that may be the cause, or
// nothing. Independent ranks have worlds of their own, and an elastic job changes its world.
std::string changes_clause(const Options& options, const HostTable& hosts,
                           std::string_view exception) {
  if (options.settings.environment.independent || is_elastic(options.settings)) return {};
  const std::string changes = is_about_world(exception) ? changed_variables(hosts) : "";
  return changes.empty() ? "" : cat("; ", changes);
}

// Warns if the ranks have not connected: each rank may have done all of the work, which looks like success.
void warn_independence(const Options& options, const HostTable& hosts, bool has_met,
                       JobOutput& output) {
  if (hosts.size() < 2 || has_met || options.settings.environment.independent) return;
  uint8_t least = UINT8_MAX, most = 0;
  for (const HostRun& host : hosts.hosts()) {
    least = std::min(least, host.independence());
    most = std::max(most, host.independence());
  }
  if (least == 0) return;
  const size_t library = std::min<size_t>(most - 2u, kParallelLibraries.size() - 1);
  const bool has_library = most != 1;
  output.print(cat(
      "each of the ", hosts.size(), " ranks has run ", printable(join(options.command, " ")),
      " by itself: none has called hvd.init() or used the job's store, PMIx or MASTER_PORT, and ",
      has_library ? "the ranks' processes were not connected to each other"
                  : "no source of the program mentions a rank",
      "; if the ranks were to train together, ",
      has_library ? cat("let the program's ", kParallelLibraries[library], " find the other ranks")
                  : "call hvd.init() in it",
      "; if each rank is a run of its own or takes its own share of the work, add "
      "--independent"));
}

}  // namespace

void print_end(const Options& options, const HostTable& hosts, const HostJobs& host_jobs,
               const Supervisor& supervisor, bool has_met, JobOutput& output) {
  output.show_tracebacks();
  std::string report = supervisor.report();
  if (report.empty()) return warn_independence(options, hosts, has_met, output);
  const int rank = supervisor.failed_rank();
  const std::string words = rank < 0 ? "" : output.last_errors(rank);
  if (rank >= 0) report += advice_on(words, context_of(rank, words, options, hosts));
  if (rank >= 0) report += changes_clause(options, hosts, output.last_exception(rank));
  const std::string killed = supervisor.killed_ranks();
  if (!killed.empty() && host_jobs.grace() > 0) {
    report += cat("; ", killed, " did not end within ", host_jobs.grace(), " s (--kill-grace) of ",
                  signal_name(host_jobs.end_signal()), " and ",
                  killed.starts_with("ranks ") ? "were" : "was", " killed");
  }
  const Tone tone = supervisor.exit_code() == 0 ? Tone::kNotice : Tone::kError;
  // The output of a single rank is directly above the report, so do not repeat it.
  if (words.empty() || hosts.size() == 1) return output.print(report, tone);
  const std::string whose =
      killed.empty() ? "its last lines" : cat("the last lines of rank ", rank);
  output.print(cat(report, "; ", whose, " on standard error:\n",
                   std::string_view(words).substr(0, words.size() - 1)),
               tone);
}

}  // namespace hvd::launcher
