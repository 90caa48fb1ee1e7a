#include "launcher/agent/preflight/host_preparation.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "launcher/agent/preflight/imported_package.h"
#include "launcher/program/command_file.h"

namespace hvd::launcher {

namespace {

// The PATH of a login without a profile, for an environment without PATH.
constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";
constexpr std::string_view kInitVariable = "HVD_REMOTE_INIT";

// `module` and the like are functions that the profile's scripts define. Their output, and that of
// the command, must not reach standard output, which gets only the environment after success.
constexpr const char* kInitScript = R"(
{
  for script in /etc/profile.d/*.sh; do
    [ -r "$script" ] && . "$script" >/dev/null 2>&1
  done
  unset script
  eval "$HVD_REMOTE_INIT"
} >&2 || exit $?
exec cat /proc/self/environ
)";

// The script does not import horovod, since the original package would import much more.
constexpr const char* kVersionScript = R"py(
import os, re, sys
print("Python %d.%d.%d" % sys.version_info[:3])
try:
    from importlib.util import find_spec
    folder = os.path.dirname(find_spec("horovod").origin)
    for name in ("_version.py", "__init__.py"):
        path = os.path.join(folder, name)
        text = open(path).read() if os.path.exists(path) else ""
        found = re.search(r"""^__version__\s*=\s*["']([^"']+)""", text, re.MULTILINE)
        if found:
            print("horovod " + found.group(1))
            break
except Exception:
    pass
)py";

// Returns true for variables that a shell sets for itself.
bool is_of_the_shell(std::string_view name) {
  return name == "_" || name == "SHLVL" || name == "PWD" || name == "OLDPWD" ||
         name == kInitVariable;
}

// Says how a command ended that printed no environment.
std::string end_of(int status) {
  if (WIFSIGNALED(status)) return cat("was ended by signal ", WTERMSIG(status));
  const int code = WEXITSTATUS(status);
  if (code != 0) return cat("failed with exit code ", code);
  return "ended its shell, with exit code 0, before the ranks' environment was there";
}

std::string on_one_line(std::string_view text) {
  constexpr size_t kMost = 1200;
  const std::string line = one_line(text);
  return line.empty() ? "it printed nothing" : printable(line, kMost);
}

}  // namespace

void HostPreparation::begin(const HostJob& job, const Environment& environment,
                            std::function<void(HostPreparationOutcome)> done) {
  job_ = job;
  done_ = std::move(done);
  outcome_.environment = overlay(environment, job.environment);
  may_lack_package_ = false;
  const Status status = check_working_directory(job_.working_directory);
  if (!status.ok()) return finish(status);
  if (job_.remote_init.empty()) return find();
  run_init();
}

void HostPreparation::run_init() {
  const bool has_bash = ::access("/bin/bash", X_OK) == 0;
  RankCommand shell;
  shell.path = has_bash ? "/bin/bash" : "/bin/sh";
  shell.arguments = {has_bash ? "bash" : "sh", "-c", kInitScript};
  shell.working_directory = job_.working_directory;
  shell.environment = outcome_.environment;
  shell.environment.emplace_back(kInitVariable, job_.remote_init);
  run(std::move(shell), &HostPreparation::on_init);
}

void HostPreparation::on_init(const HelperCommandOutcome& outcome) {
  Environment after = parse_environment(outcome.output);
  if (after.empty()) {
    return finish(failed_precondition(
        cat("the command of --remote-init, '", printable(one_line(job_.remote_init)), "', ",
            end_of(outcome.status), ": ", on_one_line(outcome.errors))));
  }
  std::erase_if(after, [](const auto& variable) { return is_of_the_shell(variable.first); });
  for (const auto& variable : outcome_.environment) {
    if (is_of_the_shell(variable.first)) after.push_back(variable);
  }
  outcome_.environment = std::move(after);
  find();
}

void HostPreparation::find() {
  const std::string_view named = value_of(outcome_.environment, "PATH");
  const std::string_view path = named.empty() ? kDefaultPath : named;
  const auto found = find_command(
      job_.command, {job_.working_directory, std::string(path), outcome_.environment, job_.python});
  if (!found.ok()) return finish(found.status());
  job_.command = found->command;
  outcome_.command = found->command;
  outcome_.program = found->path;
  const std::string interpreter = python_of(found->path, job_.working_directory, path);
  if (interpreter.empty()) return finish();
  outcome_.versions.emplace_back(kInterpreter, interpreter);
  if (const Status status = find_package(interpreter); !status.ok()) return finish(status);
  if (!job_.is_compared && !may_lack_package_) return finish();
  ask_versions();
}

void HostPreparation::ask_versions() {
  const std::string interpreter(value_of(outcome_.versions, kInterpreter));
  RankCommand python;
  python.path = interpreter;
  python.arguments = {interpreter, "-c", kVersionScript};
  python.working_directory = job_.working_directory;
  python.environment = outcome_.environment;
  run(std::move(python), &HostPreparation::on_versions);
}

Status HostPreparation::find_package(const std::string& interpreter) {
  using enum ImportedPackage::Kind;
  std::vector<std::string> arguments = job_.command;
  if (is_python(outcome_.program)) {
    arguments.erase(arguments.begin());
  } else {
    arguments[0] = outcome_.program;
  }
  const ImportedPackage package =
      find_imported_package(interpreter, arguments, job_.working_directory, outcome_.environment);
  if (package.kind == kOriginal && !job_.insecure_compat) {
    return failed_precondition(
        cat("the program imports horovod, and ", printable(interpreter),
            " finds the original Horovod first, in ", printable(package.folder),
            ", which cannot join this job: uninstall it there (",
            how_to_uninstall_original(interpreter, package.folder),
            "), or put the folder of this horovodrun's package before it on PYTHONPATH, or give "
            "--insecure-compat for ranks of the original"));
  }
  const bool may_lack = package.kind == kNone || package.kind == kUnknown;
  if (!may_lack || !has_horovod_alone(job_.package_folder)) return {};
  if (package.kind == kNone)
    add_package();
  else
    may_lack_package_ = true;
  return {};
}

void HostPreparation::add_package() {
  may_lack_package_ = false;
  const std::string more(value_of(outcome_.environment, "PYTHONPATH"));
  const std::string path = more.empty() ? job_.package_folder : cat(more, ":", job_.package_folder);
  outcome_.environment = overlay(std::move(outcome_.environment), {{"PYTHONPATH", path}});
}

void HostPreparation::on_versions(const HelperCommandOutcome& outcome) {
  for (const std::string& line : split(outcome.output, '\n')) {
    for (const std::string_view name : {"Python ", "horovod "}) {
      if (!line.starts_with(name)) continue;
      outcome_.versions.emplace_back(trim(name), printable(line.substr(name.size()), 40));
    }
  }
  const bool runs = outcome_.versions.size() > 1;
  const bool lacks_package =
      may_lack_package_ && runs && value_of(outcome_.versions, "horovod").empty();
  if (lacks_package || !job_.is_compared) outcome_.versions.resize(1);
  if (lacks_package) {
    add_package();
    return job_.is_compared ? ask_versions() : finish();
  }
  if (!runs && job_.is_compared) {
    return finish(failed_precondition(
        cat("'", job_.command[0], "' does not run: ", on_one_line(outcome.errors))));
  }
  finish();
}

void HostPreparation::run(RankCommand command,
                          void (HostPreparation::*then)(const HelperCommandOutcome&)) {
  ::getrlimit(RLIMIT_NOFILE, &command.descriptor_limit);
  auto helper = HelperCommand::start(
      loop_, command,
      [this, then](const HelperCommandOutcome& outcome) { (this->*then)(outcome); });
  if (!helper.ok()) return finish(helper.status());
  finished_ = std::exchange(helper_, std::move(*helper));
}

void HostPreparation::finish(Status status) {
  outcome_.status = std::move(status);
  std::exchange(done_, nullptr)(std::move(outcome_));
}

}  // namespace hvd::launcher
