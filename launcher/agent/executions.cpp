#include "launcher/agent/executions.h"

#include <sys/wait.h>

#include <algorithm>

namespace hvd::launcher {

namespace {

constexpr int kCannotRun = 127;  // as shells say it

}  // namespace

void Executions::start(const Run& order, const RankCommand& like) {
  // Those that have been answered; not at once, since they may be what called back.
  std::erase_if(running_, [](const Execution& each) { return each.is_said && each.status; });
  Execution& execution = running_.emplace_back();
  execution.answer = {.number = order.number, .rank = order.rank, .output = {}, .errors = {}};
  RankCommand command = like;
  command.arguments = order.command;
  command.has_input = false;
  const auto path = find_program(order.command[0], like.working_directory,
                                 value_of(like.environment, "PATH"));
  auto errand = path.ok() ? Errand::start(loop_, (command.path = *path, command),
                                          [this, &execution](const ErrandOutcome& said) {
                                            execution.is_said = true;
                                            execution.answer.output = said.output;
                                            execution.answer.errors = said.errors;
                                            settle(execution);
                                          })
                          : Result<std::unique_ptr<Errand>>(path.status());
  if (errand.ok()) {
    execution.errand = *std::move(errand);
    return;
  }
  execution.answer.code = kCannotRun;
  execution.answer.errors = errand.status().message() + "\n";
  const Ran answer = execution.answer;
  running_.pop_back();
  ended_(answer);
}

void Executions::on_reaped(pid_t pid, int status) {
  const auto found = std::find_if(running_.begin(), running_.end(), [&](const Execution& each) {
    return each.errand->pid() == pid && !each.status;
  });
  if (found == running_.end()) return;
  found->status = status;
  if (WIFSIGNALED(status)) found->answer.signal = WTERMSIG(status);
  else found->answer.code = WEXITSTATUS(status);
  settle(*found);
}

void Executions::settle(Execution& execution) {
  if (execution.is_said && execution.status) ended_(execution.answer);
}

}  // namespace hvd::launcher
