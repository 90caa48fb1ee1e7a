// What an agent does on its host before ranks start: it runs the user's --remote-init, whose
// environment the ranks get, finds the program, and asks a Python program's interpreter which
// versions it has. Lives on the agent's loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/agent/host/program.h"
#include "launcher/agent/ranks/errand.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

struct TrialOutcome {
  Status status;
  std::string program;      // the path of the file to execute
  Environment environment;  // of all ranks of the host
  // Of a Python program alone: {kInterpreter, its path}, and {"Python", "3.11.2"}, {"horovod", "1.0"}
  // of a job whose hosts are compared.
  Environment versions;
};

class Trial {
 public:
  explicit Trial(PollLoop& loop) : loop_(loop) {}
  // `environment` is the agent's own. `done` is called once, from here or on the loop.
  void begin(const HostJob& job, const Environment& environment,
             std::function<void(TrialOutcome)> done);
  // Some process of the agent's has ended and is reaped.
  void on_reaped(pid_t pid, int status) {
    if (errand_) errand_->on_reaped(pid, status);
  }

 private:
  void run_init();
  void on_init(const ErrandOutcome& said);
  void find();
  void run(RankCommand command, void (Trial::*then)(const ErrandOutcome&));
  void on_versions(const ErrandOutcome& said);
  void finish(Status status = {});

  PollLoop& loop_;
  HostJob job_;
  std::function<void(TrialOutcome)> done_;
  std::unique_ptr<Errand> errand_, finished_;
  TrialOutcome outcome_;
};

// "NAME=VALUE" texts that end with a 0 each, as the kernel lays out an environment.
Environment parse_environment(std::string_view text);

}  // namespace hvd::launcher
