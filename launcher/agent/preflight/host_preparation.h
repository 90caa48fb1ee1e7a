// Prepares a host before ranks start: runs the user's --remote-init, which gives the ranks their environment, installs
// the environment of --stage-env, finds the program, queries a Python program's interpreter for its versions, and
// provides the launcher's package to an interpreter without horovod. Lives on the agent's loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/agent/host/blocking_call.h"
#include "launcher/agent/preflight/environment_copy.h"
#include "launcher/agent/preflight/environment_transfer.h"
#include "launcher/agent/preflight/imported_package.h"
#include "launcher/agent/preflight/package_copy.h"
#include "launcher/agent/preflight/package_needs.h"
#include "launcher/agent/ranks/helper_command.h"
#include "launcher/program/program.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

struct HostPreparationOutcome {
  Status status;
  std::string program;               // path of the file to execute
  std::vector<std::string> command;  // with the Python before a script
  Environment environment;           // variables that all ranks of the host get
  ProcessLimits limits;              // those that --remote-init has changed
  // For a Python program: {kInterpreter, its path}. If the launcher compares the hosts of the job,
  // also {"Python", "3.11.2"} and {"horovod", "1.0"}. With a copy of the launcher's package also
  // {kPackageCopy, kCopySent or kCopyKept}, for other programs too, and with --stage-env {kEnvironmentCopy, the same}.
  Environment versions;
};

class HostPreparation {
 public:
  // `send`: asks the launcher for its package, or for an environment. The answers go to take(). `network`: where this
  // host may pass the environment on.
  HostPreparation(net::EventLoop& loop, std::function<void(const Message&)> send,
                  std::function<EnvironmentTransfer::Network()> network);
  // Begins. `environment` is the agent's own. Calls `done` once, from begin() or on the loop.
  void begin(const HostJob& job, const Environment& environment,
             std::function<void(HostPreparationOutcome)> done);
  // Whether a part of the package is expected; takes it.
  bool wants_part() const { return !call_.is_running() && copy_.is_incomplete(); }
  Status take(const StagePart& part);
  uint64_t taken() const { return copy_.taken(); }
  // The answer to EnvironmentWanted. False: it was not expected.
  bool take(const EnvironmentOffer& offer);
  EnvironmentTransfer& transfer() { return transfer_; }
  // Ranks start: all hosts have the environment.
  void end_transfer();
  // Whether files that only other hosts needed are being removed.
  bool is_removing() const { return is_removing_ && call_.is_running(); }
  // The job ends.
  void stop();
  // Call for every child process of the agent that was reaped.
  void on_reaped(pid_t pid, int status) {
    if (helper_) helper_->on_reaped(pid, status);
  }

 private:
  // Whether the ranks need the launcher's package. kUnknown: not all sources of the program were read.
  enum class PackageNeed { kNone, kUnknown, kCertain };
  PackageNeed need_of_program() const;
  void run_init();
  void on_init(const HelperCommandOutcome& outcome);
  // With --stage-env: finds the Python that the environment is made of.
  void find_base();
  void on_base(const HelperCommandOutcome& outcome);
  void install_environment(const Status& transferred);
  void on_installed(const HelperCommandOutcome& outcome);
  void use_environment(const char* origin);
  void find();
  // Refuses a program that would import the original Horovod, unless the ranks may be its workers. Sets package_need_.
  Status find_package();
  void ask_versions(const std::string& interpreter);
  // For another program than Python. `path`: the ranks' PATH.
  void ask_some_python(std::string_view path);
  // Gives the ranks the launcher's package: in its folder, if this host has that, else as a copy.
  void provide_package();
  // Refuses this host if the need of the package is certain.
  void do_without_package(const Status& why);
  // Why the ranks cannot have the launcher's package, or ok.
  Status check_provision() const;
  void on_unpacked(const HelperCommandOutcome& outcome);
  void use_copy(const char* origin);
  void install_copy();
  // Puts the folder on the ranks' PYTHONPATH: with --ship before what the user has installed.
  void use_package(const std::string& folder, const std::string& version);
  // Whether groups of gloo are to be groups of horovod.
  bool uses_torch_backend() const;
  std::string interpreter() const;
  std::vector<std::string> python_arguments() const;
  void run(RankCommand command, void (HostPreparation::*then)(const HelperCommandOutcome&));
  // `work` may look at or remove many files, and shares environment_ alone. `done`: on the loop.
  void call(std::function<void()> work, std::function<void()> done);
  void on_versions(const HelperCommandOutcome& outcome);
  Environment read_facts(const std::string& output);
  std::string_view search_path() const;
  void finish(Status status = {});

  net::EventLoop& loop_;
  const std::function<void(const Message&)> send_;
  HostJob job_;
  Environment own_environment_;  // of the agent
  std::function<void(HostPreparationOutcome)> done_;
  std::unique_ptr<HelperCommand> helper_, finished_;
  HostPreparationOutcome outcome_;
  PackageNeed package_need_ = PackageNeed::kNone;
  PythonFacts facts_;
  PackageCopy copy_;
  const std::function<EnvironmentTransfer::Network()> network_;
  const std::shared_ptr<EnvironmentCopy> environment_ = std::make_shared<EnvironmentCopy>();
  BlockingCall call_;
  EnvironmentTransfer transfer_;
  bool is_removing_ = false;  // by call_
  std::string base_;          // the interpreter that the environment is made of
  bool is_offer_awaited_ = false;
  bool is_program_lent_ = false;  // the host has no file of the program, and gets the launcher's
};

}  // namespace hvd::launcher
