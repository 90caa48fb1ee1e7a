#include "launcher/agent/preflight/host_preparation.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/files/elf_file.h"
#include "base/text.h"
#include "launcher/agent/doctor/host_facts.h"
#include "launcher/agent/host/safe_folder.h"
#include "launcher/protocol/command_file.h"
#include "launcher/protocol/package_list.h"

namespace hvd::launcher {

namespace {

// The PATH of a login shell without a profile, used if the environment has no PATH.
constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";
// The first torch release that loads backends by entry points.
constexpr const char* kTorchWithEntryPoints = "2.5";
constexpr std::string_view kInitVariable = "HVD_REMOTE_INIT";

// The scripts of the profile define functions such as `module`. The output of the scripts and of the command must not
// reach standard output, which gets only the environment after success.
constexpr const char* kInitScript = R"(
{
  for script in /etc/profile.d/*.sh; do
    [ -r "$script" ] && . "$script" >/dev/null 2>&1
  done
  unset script
  eval "$HVD_REMOTE_INIT"
} >&2 || exit $?
exec cat /proc/self/environ /proc/self/limits /proc/self/status
)";

// Prints the versions of Python, horovod and glibc, the machine, and torch's version if horovod is its backend. Reads
// horovod's version from its files: importing the original package takes long. With an argument, also prints the newest
// symbol version of libstdc++.
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
print("machine " + os.uname().machine)
try:
    print("glibc " + os.confstr("CS_GNU_LIBC_VERSION").split()[-1])
except Exception:
    print("glibc none")
if os.environ.get("HOROVOD_TORCH_BACKEND") == "horovod":
    try:
        from importlib.metadata import version
        print("torch " + version("torch"))
    except Exception:
        pass
if len(sys.argv) > 1:
    newest = "none"
    try:
        import ctypes
        ctypes.CDLL("libstdc++.so.6")
        with open("/proc/self/maps") as maps:
            path = next(line.split(None, 5)[5].strip() for line in maps if "/libstdc++.so" in line)
        with open(path, "rb") as library:
            found = re.findall(rb"GLIBCXX_3\.4\.(\d+)", library.read())
        newest = "3.4.%d" % max(map(int, found))
    except Exception:
        pass
    print("libstdc++ " + newest)
)py";

// Returns true for variables that a shell sets by itself.
bool is_of_the_shell(std::string_view name) {
  return name == "_" || name == "SHLVL" || name == "PWD" || name == "OLDPWD" ||
         name == kInitVariable;
}

// Describes the end of a command that printed no environment.
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

HostPreparation::HostPreparation(net::EventLoop& loop, std::function<void(const Message&)> send,
                                 std::function<EnvironmentTransfer::Network()> network)
    : loop_(loop),
      send_(std::move(send)),
      network_(std::move(network)),
      call_(loop),
      transfer_(loop, {.send = send_,
                       .write = [this](const StagePart& part) { return environment_->write(part); },
                       .on_end = [this](const Status& status) { install_environment(status); }}) {}

void HostPreparation::begin(const HostJob& job, const Environment& environment,
                            std::function<void(HostPreparationOutcome)> done) {
  job_ = job;
  done_ = std::move(done);
  own_environment_ = environment;
  outcome_.environment = overlay(environment, job.environment);
  const Status status = check_working_directory(job_.working_directory);
  if (!status.ok()) return finish(status);
  if (!job_.remote_init.empty()) return run_init();
  job_.has_environment ? find_base() : find();
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
  // Each variable ends with NUL. The text after the last NUL has the limits.
  const size_t end = outcome.output.rfind('\0') + 1;
  Environment after = parse_environment(std::string_view(outcome.output).substr(0, end));
  if (after.empty()) {
    return finish(failed_precondition(
        cat("the command of --remote-init, '", printable(one_line(job_.remote_init)), "', ",
            end_of(outcome.status), ": ", on_one_line(outcome.errors))));
  }
  outcome_.limits = read_process_limits(std::string_view(outcome.output).substr(end));
  std::erase_if(after, [](const auto& variable) { return is_of_the_shell(variable.first); });
  for (const auto& variable : outcome_.environment) {
    if (is_of_the_shell(variable.first)) after.push_back(variable);
  }
  outcome_.environment = std::move(after);
  job_.has_environment ? find_base() : find();
}

std::string_view HostPreparation::search_path() const {
  const std::string_view named = value_of(outcome_.environment, "PATH");
  return named.empty() ? kDefaultPath : named;
}

// Uses the Python that the command names, or else python3.
void HostPreparation::find_base() {
  const std::string* named = python_word(job_.command);
  const auto found =
      find_program(named != nullptr ? *named : "python3", job_.working_directory, search_path());
  if (!found.ok()) return finish(found.status().with_context("--stage-env"));
  base_ = python_of(*found, job_.working_directory, search_path());
  if (base_.empty()) base_ = *found;
  RankCommand python;
  python.path = base_;
  python.arguments = {base_, "-I", "-c", kVersionScript};
  python.working_directory = job_.working_directory;
  python.environment = outcome_.environment;
  run(std::move(python), &HostPreparation::on_base);
}

void HostPreparation::on_base(const HelperCommandOutcome& outcome) {
  read_facts(outcome.output);
  if (facts_.version.empty()) {
    return finish(
        failed_precondition(cat("'", base_, "' does not run: ", on_one_line(outcome.errors))));
  }
  is_offer_awaited_ = true;
  send_(EnvironmentWanted{facts_.version, facts_.machine, facts_.glibc});
}

bool HostPreparation::take(const EnvironmentOffer& offer) {
  if (!std::exchange(is_offer_awaited_, false)) return false;
  if (is_older(facts_.glibc, offer.glibc)) {
    finish(failed_precondition(cat("the environment of --stage-env needs glibc ", offer.glibc,
                                   ", and this host has ", facts_.glibc,
                                   ": run the job on hosts with newer systems, or name older "
                                   "versions of its packages")));
    return true;
  }
  const auto folders = environment_folders(job_.environment_dir, outcome_.environment);
  const auto is_kept = std::make_shared<bool>(false);
  const auto status = std::make_shared<Status>();
  auto listed = parse_package_list(offer.list, kMostEnvironmentBytes);
  if (!listed.ok()) {
    finish(listed.status());
    return true;
  }
  const auto files = std::make_shared<std::vector<PackageFile>>(*std::move(listed));
  call(
      [=, copy = environment_, python = cat(base_, " ", facts_.version)] {
        *is_kept = copy->find(offer, python, folders);
        if (!*is_kept) *status = copy->expect(offer, folders);
      },
      [=, this] {
        if (*is_kept) return use_environment(kCopyKept);
        if (!status->ok()) return finish(*status);
        transfer_.begin(offer, std::move(*files), environment_->parts(), network_());
      });
  return true;
}

void HostPreparation::end_transfer() {
  transfer_.close();
  if (!environment_->has_parts()) return;
  // On a thread, because removing gigabytes takes a while.
  is_removing_ = call_.start([copy = environment_] { copy->remove_parts(); }, [] {});
  if (!is_removing_) environment_->remove_parts();
}

void HostPreparation::stop() {
  transfer_.close();
  if (!is_removing_) call_.abandon();
}

void HostPreparation::install_environment(const Status& transferred) {
  if (!transferred.ok()) return finish(transferred.with_context("--stage-env"));
  RankCommand installation = environment_->installation(base_);
  installation.environment = outcome_.environment;
  run(std::move(installation), &HostPreparation::on_installed);
}

void HostPreparation::on_installed(const HelperCommandOutcome& outcome) {
  if (outcome.status != 0) {
    return finish(failed_precondition(
        cat("the environment of --stage-env cannot be installed: ", on_one_line(outcome.errors))));
  }
  const auto status = std::make_shared<Status>();
  call([=, copy = environment_] { *status = copy->keep(); },
       [=, this] { status->ok() ? use_environment(kCopySent) : finish(*status); });
}

void HostPreparation::use_environment(const char* origin) {
  outcome_.versions.emplace_back(kEnvironmentCopy, origin);
  environment_->enter(outcome_.environment, job_.command);
  find();
}

void HostPreparation::find() {
  if (job_.command.front() == kAgentProgram) {
    // This path works even if another agent has removed the file.
    job_.command.front() = cat("/proc/", ::getpid(), "/exe");
    outcome_.command = job_.command;
    outcome_.program = job_.command.front();
    return finish();
  }
  const std::string_view path = search_path();
  const auto found =
      find_command(job_.command, {job_.working_directory, std::string(path), outcome_.environment,
                                  job_.python, job_.hosts > 1 && !job_.is_staged});
  if (!found.ok()) {
    is_program_lent_ = found.status().code() == Code::kNotFound && !job_.package.program.empty();
    if (!is_program_lent_) return finish(found.status());
    package_need_ = PackageNeed::kCertain;
    return ask_some_python(path);
  }
  job_.command = found->command;
  outcome_.command = found->command;
  outcome_.program = found->path;
  const std::string interpreter = python_of(found->path, job_.working_directory, path);
  if (interpreter.empty()) {
    if (job_.shipping != Shipping::kEverywhere && !uses_torch_backend()) return finish();
    package_need_ = PackageNeed::kCertain;
    return ask_some_python(path);
  }
  outcome_.versions.emplace_back(kInterpreter, interpreter);
  if (const Status status = find_package(); !status.ok()) return finish(status);
  if (!job_.is_compared && package_need_ == PackageNeed::kNone && !uses_torch_backend())
    return finish();
  ask_versions(interpreter);
}

// For a program that is not Python but may start a Python: queries a Python for the libraries of this host.
void HostPreparation::ask_some_python(std::string_view path) {
  const std::string* named = python_word(job_.command);
  const auto python =
      find_program(named != nullptr ? *named : "python3", job_.working_directory, path);
  return python.ok() ? ask_versions(*python) : provide_package();
}

std::string HostPreparation::interpreter() const {
  return std::string(value_of(outcome_.versions, kInterpreter));
}

// Returns the arguments of the interpreter, without its name. For a script, also the options in its first line.
std::vector<std::string> HostPreparation::python_arguments() const {
  std::vector<std::string> arguments = job_.command;
  if (is_python(outcome_.program)) {
    arguments.erase(arguments.begin());
  } else {
    arguments[0] = outcome_.program;
  }
  if (!interpreter().empty() && !is_python(outcome_.program)) {
    const auto options = options_of_interpreter(outcome_.program);
    arguments.insert(arguments.begin(), options.begin(), options.end());
  }
  return arguments;
}

Status HostPreparation::find_package() {
  using enum ImportedPackage::Kind;
  const std::string python = interpreter();
  const ImportedPackage package = find_imported_package(
      python, python_arguments(), job_.working_directory, outcome_.environment);
  if (package.kind == kOriginal && !job_.insecure_compat) {
    return failed_precondition(
        cat("the program imports horovod, and ", printable(python),
            " finds the original Horovod first, in ", printable(package.folder),
            ", which cannot join this job: uninstall it there (",
            how_to_uninstall_original(python, package.folder),
            "), or put the folder of this horovodrun's package before it on PYTHONPATH, or give "
            "--insecure-compat for ranks of the original"));
  }
  const bool is_there = package.kind == kFound || package.kind == kOriginal;
  package_need_ = is_there ? PackageNeed::kNone : need_of_program();
  if (job_.shipping == Shipping::kEverywhere) package_need_ = PackageNeed::kCertain;
  return {};
}

bool HostPreparation::uses_torch_backend() const {
  return value_of(outcome_.environment, "HOROVOD_TORCH_BACKEND") == "horovod";
}

// A program that does not name horovod needs the package only if horovod is to replace the backend gloo.
HostPreparation::PackageNeed HostPreparation::need_of_program() const {
  const auto look = [&](auto* in_sources) {
    return in_sources(interpreter(), python_arguments(), job_.working_directory,
                      outcome_.environment);
  };
  if (uses_torch_backend() || look(imports_horovod) == Mention::kSome) return PackageNeed::kCertain;
  return look(mentions_horovod) == Mention::kNone ? PackageNeed::kNone : PackageNeed::kUnknown;
}

void HostPreparation::ask_versions(const std::string& interpreter) {
  RankCommand python;
  python.path = interpreter;
  python.arguments = {interpreter};
  const std::string isolating = program_of_python(python_arguments()).ignores_pythonpath;
  if (!isolating.empty()) python.arguments.push_back(isolating);
  python.arguments.insert(python.arguments.end(), {"-c", kVersionScript});
  if (!job_.package.glibcxx.empty()) python.arguments.emplace_back("libstdc++");
  python.working_directory = job_.working_directory;
  python.environment = outcome_.environment;
  run(std::move(python), &HostPreparation::on_versions);
}

// Returns the lines that kVersionScript has printed. Sets facts_.
Environment HostPreparation::read_facts(const std::string& output) {
  Environment printed;
  for (const std::string& line : split(output, '\n')) {
    const size_t blank = line.find(' ');
    if (blank == std::string::npos) continue;
    printed.emplace_back(line.substr(0, blank), printable(line.substr(blank + 1), 40));
  }
  const auto value = [&](const char* name) { return std::string(value_of(printed, name)); };
  facts_ = {value("Python"), value("machine"), value("glibc"), value("libstdc++")};
  return printed;
}

void HostPreparation::on_versions(const HelperCommandOutcome& outcome) {
  const Environment printed = read_facts(outcome.output);
  const auto value = [&](const char* name) { return std::string(value_of(printed, name)); };
  const bool is_python_program = !interpreter().empty();
  if (facts_.version.empty() && is_python_program && job_.is_compared) {
    return finish(failed_precondition(
        cat("'", job_.command[0], "' does not run: ", on_one_line(outcome.errors))));
  }
  const std::string torch = value("torch");
  if (is_python_program && !torch.empty() && is_older(torch, kTorchWithEntryPoints) &&
      imports_torch_backend(interpreter(), python_arguments(), job_.working_directory,
                            outcome_.environment) == Mention::kNone) {
    return finish(failed_precondition(
        cat("torch ", torch,
            " does not load the backend horovod by itself: import horovod.torch.distributed in ",
            "the program, or install torch ", kTorchWithEntryPoints, " or newer")));
  }
  for (const char* name : {"Python", "horovod"}) {
    if (!job_.is_compared || !is_python_program || value(name).empty()) continue;
    outcome_.versions.emplace_back(name, value(name));
  }
  const bool is_given = job_.shipping == Shipping::kEverywhere || is_program_lent_;
  const bool lacks_package = !facts_.version.empty() && value("horovod").empty();
  if (!is_given && !lacks_package) package_need_ = PackageNeed::kNone;
  return package_need_ == PackageNeed::kNone ? finish() : provide_package();
}

Status HostPreparation::check_provision() const {
  const bool is_first = job_.shipping == Shipping::kEverywhere;
  const std::string lacks = cat(is_first ? "--ship gives the ranks horovod, and "
                                         : cat(printable(interpreter()), " has no horovod, and "));
  if (job_.shipping == Shipping::kNever) {
    return failed_precondition(
        cat(lacks,
            "--no-ship keeps this horovodrun from giving it its own: leave out --no-ship, "
            "or install horovod there"));
  }
  const std::string isolating = program_of_python(python_arguments()).ignores_pythonpath;
  if (!interpreter().empty() && !isolating.empty()) {
    return failed_precondition(
        cat(lacks, "with ", isolating,
            " it ignores PYTHONPATH, by which ranks find that of this horovodrun: leave out ",
            isolating, ", or install horovod there"));
  }
  const std::string why = why_package_cannot_run(job_.package, facts_);
  return why.empty() ? Status() : failed_precondition(why);
}

void HostPreparation::provide_package() {
  // The launcher's own machine gets no offer: the folder needs no check there. On another host, any user may own it.
  const bool is_there = !is_program_lent_ && has_horovod_alone(job_.package_folder) &&
                        (job_.package.name.empty() || safe_folder(job_.package_folder).ok());
  const bool is_forbidden = job_.shipping == Shipping::kNever;
  if (!is_forbidden && !is_there && job_.package.name.empty()) return finish();
  if (const Status status = check_provision(); !status.ok()) return do_without_package(status);
  if (is_there) {
    use_package(job_.package_folder, version_of_package(job_.package_folder));
    return finish();
  }
  std::error_code error;
  const std::string agent = std::filesystem::read_symlink("/proc/self/exe", error).string();
  auto folders = agent_folders(job_.agent_dir, agent, own_environment_);
  // PYTHONPATH separates folders by colons, so a name with a colon cannot be used.
  std::erase_if(folders,
                [](const std::string& each) { return each.find(':') != std::string::npos; });
  if (copy_.find(job_.package, folders)) return use_copy(kCopyKept);
  const Status status = copy_.expect(job_.package, folders);
  if (!status.ok()) return do_without_package(status);
  send_(PackageWanted{});
}

void HostPreparation::do_without_package(const Status& why) {
  return package_need_ == PackageNeed::kCertain ? finish(why) : finish();
}

Status HostPreparation::take(const StagePart& part) {
  HVD_RETURN_IF_ERROR(copy_.take(part));
  if (copy_.is_incomplete()) return {};
  auto unpacking = copy_.unpacking(interpreter());
  if (!unpacking) {
    install_copy();
    return {};
  }
  unpacking->environment = outcome_.environment;
  run(*std::move(unpacking), &HostPreparation::on_unpacked);
  return {};
}

void HostPreparation::on_unpacked(const HelperCommandOutcome& outcome) {
  if (outcome.status != 0) {
    return finish(failed_precondition(cat(
        "the package that this horovodrun sent cannot be unpacked (", on_one_line(outcome.errors),
        "); set HOROVOD_AGENT_DIR to a directory with free space")));
  }
  install_copy();
}

void HostPreparation::install_copy() {
  if (const Status status = copy_.install(); !status.ok()) return finish(status);
  use_copy(kCopySent);
}

void HostPreparation::use_copy(const char* origin) {
  use_package(copy_.python_folder(), job_.package.version);
  outcome_.versions.emplace_back(kPackageCopy, origin);
  if (is_program_lent_) {
    outcome_.program = cat(copy_.folder(), "/", job_.package.program);
    outcome_.command = job_.command;
    outcome_.command.front() = outcome_.program;
  }
  finish();
}

void HostPreparation::use_package(const std::string& folder, const std::string& version) {
  const std::string others(value_of(outcome_.environment, "PYTHONPATH"));
  const bool is_first = job_.shipping == Shipping::kEverywhere;
  std::string path = folder;
  if (!others.empty()) path = is_first ? cat(folder, ":", others) : cat(others, ":", folder);
  outcome_.environment = overlay(std::move(outcome_.environment), {{"PYTHONPATH", path}});
  std::erase_if(outcome_.versions, [](const auto& each) { return each.first == "horovod"; });
  if (job_.is_compared && !interpreter().empty()) {
    outcome_.versions.emplace_back("horovod", version);
  }
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

void HostPreparation::call(std::function<void()> work, std::function<void()> done) {
  if (call_.start(work, done)) return;
  work();
  done();
}

void HostPreparation::finish(Status status) {
  outcome_.status = std::move(status);
  if (outcome_.status.ok()) {
    outcome_.versions.emplace_back(kHostFacts, quick_facts().dump());
  }
  std::exchange(done_, nullptr)(std::move(outcome_));
}

}  // namespace hvd::launcher
