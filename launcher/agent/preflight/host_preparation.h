// Prepares a host before ranks start: runs the user's --remote-init, which gives the ranks their
// environment, finds the program, and asks a Python program's interpreter for its versions. Lives on
// the agent's loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/agent/ranks/helper_command.h"
#include "launcher/program/program.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

struct HostPreparationOutcome {
  Status status;
  std::string program;               // path of the file to execute
  std::vector<std::string> command;  // with the Python before a script
  Environment environment;           // variables that all ranks of the host get
  // For a Python program: {kInterpreter, its path}. If the launcher compares the hosts of the job,
  // also {"Python", "3.11.2"} and {"horovod", "1.0"}. Empty for other programs.
  Environment versions;
};

class HostPreparation {
 public:
  explicit HostPreparation(net::EventLoop& loop) : loop_(loop) {}
  // Begins. `environment` is the agent's own. Calls `done` once, from begin() or on the loop.
  void begin(const HostJob& job, const Environment& environment,
             std::function<void(HostPreparationOutcome)> done);
  // Call for every child process of the agent that was reaped.
  void on_reaped(pid_t pid, int status) {
    if (helper_) helper_->on_reaped(pid, status);
  }

 private:
  void run_init();
  void on_init(const HelperCommandOutcome& outcome);
  void find();
  // Refuses a program that would import the original Horovod, unless the ranks may be its workers. Puts the package of
  // the launcher on the import path of an interpreter without one, or sets may_lack_package_.
  Status find_package(const std::string& interpreter);
  void add_package();
  void ask_versions();
  void run(RankCommand command, void (HostPreparation::*then)(const HelperCommandOutcome&));
  void on_versions(const HelperCommandOutcome& outcome);
  void finish(Status status = {});

  net::EventLoop& loop_;
  HostJob job_;
  std::function<void(HostPreparationOutcome)> done_;
  std::unique_ptr<HelperCommand> helper_, finished_;
  HostPreparationOutcome outcome_;
  bool may_lack_package_ = false;  // the interpreter must be asked whether it has horovod
};

}  // namespace hvd::launcher
