#include "launcher/mpirun/start.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/allocation/host_choice.h"
#include "launcher/mpirun/arguments.h"
#include "launcher/output/report.h"
#include "launcher/plan/environment_choice.h"
#include "launcher/plan/inner_launcher.h"
#include "launcher/plan/installation.h"
#include "launcher/plan/slot_plan.h"
#include "launcher/protocol/command_file.h"
#include "launcher/spawn/local_program.h"

namespace hvd::launcher {
namespace {

using Arguments = std::vector<std::string>;

constexpr char kCsm[] = "/opt/ibm/csm/bin/";

std::string shown(const Arguments& command) {
  Arguments quoted;
  for (const std::string& word : command) {
    const bool is_unquoted =
        !word.empty() &&
        word.find_first_not_of(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,@+%^") ==
            std::string::npos;
    quoted.push_back(is_unquoted ? word : shell_quote(word));
  }
  return join(quoted, " ");
}

// The variables of the program to start, and the names that it passes on.
struct Variables {
  Environment all;
  Arguments exported;
};

Result<Variables> choose_variables(const LaunchSettings& settings) {
  HVD_ASSIGN_OR_RETURN(const EnvironmentChoice choice, read_environment_choice(settings));
  const Environment inherited = environment();
  for (const std::string& name : unset_names(inherited, choice)) {
    print_message(cat("-x ", name, ": it is not set here"));
  }
  Environment flags = flag_environment(settings);
  flags.emplace_back("PYTHONUNBUFFERED", "1");
  if (settings.job.start_timeout.is_set) {
    flags.emplace_back("HOROVOD_START_TIMEOUT", settings.table().text("start_timeout"));
  }
  return Variables{chosen_environment(inherited, flags, choice, true),
                   exported_names(chosen_environment(inherited, flags, choice, false))};
}

Result<MpiFlavour> find_flavour(Deadline deadline) {
  const auto output = output_of({"mpirun", "--version"}, deadline);
  constexpr char kFix[] =
      "; put that of Open MPI, MPICH, Intel MPI or Spectrum MPI first in PATH "
      "(Debian: apt-get install openmpi-bin), or leave out --mpi";
  if (output.status().code() == Code::kNotFound) {
    return not_found(cat("--mpi: there is no mpirun in PATH", kFix));
  }
  if (!output.ok()) return output.status().with_context("--mpi");
  if (const auto flavour = flavour_of(*output)) return *flavour;
  const std::string_view line = trim(std::string_view(*output).substr(0, output->find('\n')));
  return invalid_argument(
      cat("--mpi: the mpirun in PATH is of an unknown kind: mpirun --version prints ",
          line.empty() ? "nothing" : printable(line), kFix));
}

int start_mpirun(const Options& options, Deadline deadline) {
  const LaunchSettings& settings = options.settings;
  auto hosts = choose_hosts(settings);
  if (!hosts.ok()) return refuse(hosts.status());
  if (std::ranges::any_of(*hosts, [](const Host& host) { return host.slots == 0; })) {
    return refuse(invalid_argument(
        "--slots-per-host gpu asks the agents of this launcher, and --mpi starts none; write the "
        "number of ranks on each host"));
  }
  const auto plan = plan_slots(*hosts, settings.job.num_proc);
  if (!plan.ok()) return refuse(plan.status());
  const auto variables = choose_variables(settings);
  if (!variables.ok()) return refuse(variables.status());
  if (!settings.environment.independent) {
    const Status inner = check_inner_launcher(options.command, variables->all, *plan, kByMpi);
    if (!inner.ok()) return refuse(inner);
    const std::string remark =
        describe_inner_launcher(options.command, variables->all, *plan, kByMpi);
    if (!remark.empty()) print_message(remark);
  }
  const auto flavour = find_flavour(deadline);
  if (!flavour.ok()) return refuse(flavour.status());
  const auto command = mpirun_arguments(*flavour, options, *plan, variables->exported);
  if (!command.ok()) return refuse(command.status());
  if (settings.job.dry_run) return std::puts(shown(*command).c_str()) < 0 ? kExitLauncher : 0;
  if (settings.job.verbose)
    print_message(cat(name_of(*flavour), " starts the ranks: ", shown(*command)));
  return refuse(become_program(*command, variables->all));
}

Result<LsfNode> look_at_node(const std::string& host, Deadline deadline) {
  const std::string job = environment_variable("CSM_ALLOCATION_ID").value_or("");
  const auto query = [&](const char* program, const char* flag, const std::string& of) {
    return output_of({cat(kCsm, program), flag, of}, deadline);
  };
  const auto allocation = query("csm_allocation_query", "-a", job);
  if (allocation.status().code() == Code::kNotFound) {
    return not_found(
        cat("--jsrun asks IBM's CSM for the cores and GPUs of the hosts, and there is no ", kCsm,
            "csm_allocation_query; give --binding-args, such as '--nrs 2 "
            "--tasks_per_rs 4'"));
  }
  if (!allocation.ok()) return allocation.status();
  HVD_ASSIGN_OR_RETURN(const std::string attributes,
                       query("csm_node_attributes_query", "-n", host));
  HVD_ASSIGN_OR_RETURN(
      const std::string lscpu,
      output_of({"ssh", "-o", "BatchMode=yes", host, "LC_ALL=C", "lscpu"}, deadline));
  return parse_lsf_node(*allocation, attributes, lscpu);
}

// A file in the folder for temporary files. The destructor removes the file.
class TemporaryFile {
 public:
  ~TemporaryFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }
  Status write(const std::string& text) {
    std::string path = environment_variable("TMPDIR").value_or("/tmp") + "/horovodrun-XXXXXX";
    const UniqueFd file(::mkstemp(path.data()));
    if (!file) return system_error("cannot make the file " + path, errno);
    path_ = path;
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    return written == static_cast<ssize_t>(text.size())
               ? Status()
               : system_error("cannot write the file " + path, errno);
  }

 private:
  std::string path_;
};

// Returns the text of the rankfile; empty if --binding-args places the ranks.
Result<std::string> make_rankfile(const LaunchSettings& settings, std::vector<Host> hosts,
                                  Deadline deadline) {
  if (settings.launchers.binding_args.has_value()) return std::string();
  HVD_ASSIGN_OR_RETURN(const LsfNode node, look_at_node(hosts.front().name, deadline));
  if (!settings.hosts.list.has_value() && !settings.hosts.hostfile.has_value()) {
    for (Host& host : hosts) host.slots = node.gpus;
  }
  HVD_ASSIGN_OR_RETURN(const SlotPlan plan, plan_slots(hosts, settings.job.num_proc));
  return rankfile(plan, node);
}

int start_jsrun(const Options& options, Deadline deadline) {
  const LaunchSettings& settings = options.settings;
  if (!environment_variable("LSB_JOBID")) {
    return refuse(
        invalid_argument("--jsrun is for a job of LSF, and LSB_JOBID is not set; submit this "
                         "by bsub, or leave out --jsrun"));
  }
  const auto hosts = choose_hosts(settings);
  if (!hosts.ok()) return refuse(hosts.status());
  const auto variables = choose_variables(settings);
  if (!variables.ok()) return refuse(variables.status());
  const auto places = make_rankfile(settings, *hosts, deadline);
  if (!places.ok()) return refuse(places.status());
  TemporaryFile file;
  if (!places->empty()) {
    if (const Status written = file.write(*places); !written.ok()) return refuse(written);
  }
  const auto command = jsrun_arguments(options, hosts->size(), file.path());
  if (!command.ok()) return refuse(command.status());
  if (settings.job.dry_run) return std::puts(shown(*command).c_str()) < 0 ? kExitLauncher : 0;
  if (settings.job.verbose) print_message(cat("jsrun starts the ranks: ", shown(*command)));
  const auto code = run_program(*command, variables->all);
  return code.ok() ? *code : refuse(code.status());
}

}  // namespace

namespace {

// Puts this host's Python before a script. Without agents, no program looks for a Python on the other hosts.
Status put_python_before(Options& options) {
  if (options.command.empty() || !options.command[0].ends_with(".py")) return {};
  const Environment all = environment();
  std::error_code error;
  const std::string folder =
      (std::filesystem::current_path(error) / options.settings.job.wdir.value_or("")).string();
  HVD_ASSIGN_OR_RETURN(
      CommandFile file,
      find_command(options.command, {folder, environment_variable("PATH").value_or(""), all,
                                     find_environment_python(executable_folder())}));
  options.command = std::move(file.command);
  return {};
}

}  // namespace

std::vector<std::string> exported_names(const Environment& environment) {
  Arguments names;
  for (const auto& [name, value] : environment) {
    const std::string_view text = name;
    const bool stays = text.starts_with("BASH_FUNC_") || text == "OLDPWD" ||
                       text.find("CUDA_VISIBLE_DEVICES") != std::string_view::npos ||
                       text == "_HOROVOD_SECRET_KEY" || text == "HOROVOD_JOB_SECRET";
    if (!stays) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool is_started_by_mpi(const Options& options) {
  return options.settings.launchers.mpi || options.settings.launchers.jsrun;
}

int run_by_mpi(const Options& given) {
  Options options = given;
  if (const Status found = put_python_before(options); !found.ok()) return refuse(found);
  const LaunchSettings& settings = options.settings;
  const Status flags = check_flags_without_agents(settings);
  if (!flags.ok()) return refuse(flags);
  const Deadline deadline = Deadline::after_seconds(settings.job.start_timeout.value);
  return settings.launchers.jsrun ? start_jsrun(options, deadline)
                                  : start_mpirun(options, deadline);
}

}  // namespace hvd::launcher
