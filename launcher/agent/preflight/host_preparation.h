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
#include "launcher/agent/ranks/helper_command.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/program.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

struct HostPreparationOutcome {
  Status status;
  std::string program;               // path of the file to execute
  std::vector<std::string> command;  // with the interpreter before a script
  Environment environment;           // variables for all ranks of the host
  ProcessLimits limits;              // limits that --remote-init has changed
  // For a Python program: {kInterpreter, its path}. If the launcher compares the hosts of the job, also {"Python",
  // "3.11.2"} and {"horovod", "1.0"}. For any program with a copy of the launcher's package, {kPackageCopy, kCopySent
  // or kCopyKept}. With --stage-env, {kEnvironmentCopy, kCopySent or kCopyKept}.
  Environment versions;
};

class HostPreparation {
 public:
  // `send`: sends the requests for the launcher's package, or for an environment. The answers go to take(). `network`:
  // where this host may serve the environment.
  HostPreparation(net::EventLoop& loop, std::function<void(const Message&)> send,
                  std::function<EnvironmentTransfer::Network()> network);
  // `environment` is the agent's own. Calls `done` once, from begin() or on the loop.
  void begin(const HostJob& job, const Environment& environment,
             std::function<void(HostPreparationOutcome)> done);
  // Returns whether a part of the package is expected; take() then handles the part.
  bool wants_part() const { return !call_.is_running() && copy_.is_incomplete(); }
  Status take(const StagePart& part);
  uint64_t taken() const { return copy_.taken(); }
  // Handles the answer to EnvironmentWanted. Returns false if the answer was not expected.
  bool take(const EnvironmentOffer& offer);
  EnvironmentTransfer& transfer() { return transfer_; }
  // Call when ranks start: all hosts have the environment.
  void end_transfer();
  // Returns whether files that only other hosts needed are still being removed.
  bool is_removing() const { return is_removing_ && call_.is_running(); }
  // Call when the job ends.
  void stop();
  // Call for every child process of the agent that was reaped.
  void on_reaped(pid_t pid, int status) {
    if (helper_) helper_->on_reaped(pid, status);
  }

 private:
  // The ranks' need for the launcher's package. kUnknown: some sources of the program could not be read.
  enum class PackageNeed { kNone, kUnknown, kCertain };
  PackageNeed need_of_program() const;
  void run_init();
  void on_init(const HelperCommandOutcome& outcome);
  // With --stage-env: finds the Python on which the environment is based.
  void find_base();
  void on_base(const HelperCommandOutcome& outcome);
  void install_environment(const Status& transferred);
  void on_installed(const HelperCommandOutcome& outcome);
  void use_environment(const char* origin);
  void find();
  // Refuses a program that would import the original Horovod, unless the ranks may be its workers. Sets package_need_.
  Status find_package();
  void ask_versions(const std::string& interpreter);
  // Queries a Python found by `path`, the ranks' PATH, for a program that is not Python.
  void ask_some_python(std::string_view path);
  // Gives the ranks the launcher's package: from the same folder if this host has it, else as a copy.
  void provide_package();
  // Refuses this host if its ranks certainly need the package; otherwise they start without it.
  void do_without_package(const Status& why);
  // Returns why the ranks cannot get the launcher's package, or ok.
  Status check_provision() const;
  void on_unpacked(const HelperCommandOutcome& outcome);
  void use_copy(const char* origin);
  void install_copy();
  // Adds the folder to the ranks' PYTHONPATH: with --ship before the user's own packages.
  void use_package(const std::string& folder, const std::string& version);
  // Returns whether horovod is to replace the backend gloo of torch.distributed.
  bool uses_torch_backend() const;
  std::string interpreter() const;
  std::vector<std::string> python_arguments() const;
  void run(RankCommand command, void (HostPreparation::*then)(const HelperCommandOutcome&));
  // Runs `work`, which may read or remove many files, on a thread if one can start, then `done` on the loop. `work`
  // shares only environment_.
  void call(std::function<void()> work, std::function<void()> done);
  void on_versions(const HelperCommandOutcome& outcome);
  Environment read_facts(const std::string& output);
  std::string_view search_path() const;
  void finish(Status status = {});

  net::EventLoop& loop_;
  const std::function<void(const Message&)> send_;
  HostJob job_;
  Environment own_environment_;  // environment of the agent
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
  bool is_removing_ = false;  // call_ is removing the files that only other hosts needed
  std::string base_;          // the interpreter on which the environment is based
  bool is_offer_awaited_ = false;
  bool is_program_lent_ = false;  // the host lacks the program, and gets the launcher's program
};

}  // namespace hvd::launcher
