#include "launcher/agent/ranks/executions.h"

#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/text.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/protocol/other_launchers.h"

namespace hvd::launcher {

namespace {

constexpr int kCannotRun = 127;  // the exit code of shells

// Returns whether an MPI program that finds this variable would join the job in place of the rank.
bool is_for_mpi(const std::string& name) {
  return fits(name, "PMI_*") || fits(name, "PMIX_*") || name == "OMPI_MCA_schizo";
}

}  // namespace

Executions::~Executions() {
  for (const Execution& execution : running_) {
    for (const UniqueFd& pipe : execution.process.output) {
      if (pipe) loop_.unwatch(pipe.get());
    }
  }
}

void Executions::start(const Run& order, const RankCommand& like) {
  // Erase answered executions only now: an earlier answer may have come from a callback of its own execution.
  std::erase_if(running_, [](const Execution& each) { return each.answer.number == 0; });
  ExecResult answer{.number = order.number, .rank = order.rank, .why = {}};
  RankCommand command = like;
  command.arguments = order.command;
  command.has_input = false;
  std::erase_if(command.environment,
                [](const auto& variable) { return is_for_mpi(variable.first); });
  const auto path =
      find_program(order.command[0], like.working_directory, value_of(like.environment, "PATH"));
  auto process =
      path.ok() ? start_rank((command.path = *path, command)) : Result<RankProcess>(path.status());
  if (!process.ok()) {
    answer.code = kCannotRun;
    answer.why = process.status().message() + "\n";
    return send_(answer);
  }
  Execution& execution = running_.emplace_back();
  execution.answer = std::move(answer);
  execution.process = *std::move(process);
  execution.group = execution.process.pid;
  for (const UniqueFd& pipe : execution.process.output) {
    loop_.watch(pipe.get(), EPOLLIN, [this, &execution](uint32_t) { read(execution); });
  }
}

Executions::Execution* Executions::find(uint32_t number) {
  for (Execution& each : running_) {
    if (each.answer.number == number) return &each;
  }
  return nullptr;
}

void Executions::read(Execution& execution) {
  for (size_t stream = 0; stream < 2; ++stream) {
    UniqueFd& pipe = execution.process.output[stream];
    while (pipe && execution.unread < kChunkWindow && read_some(execution, stream)) {
    }
    if (pipe) loop_.change(pipe.get(), execution.unread < kChunkWindow ? EPOLLIN : EPOLL_EVENTS{});
  }
  settle(execution);
}

// Returns whether more bytes may be available now.
bool Executions::read_some(Execution& execution, size_t stream) {
  UniqueFd& pipe = execution.process.output[stream];
  std::array<char, 16 << 10> buffer;
  const size_t room = std::min(buffer.size(), kChunkWindow - execution.unread);
  const ssize_t size = ::read(pipe.get(), buffer.data(), room);
  if (size > 0) {
    execution.unread += static_cast<size_t>(size);
    send_(OutputChunk{execution.answer.number,
                      execution.answer.rank,
                      static_cast<uint8_t>(stream),
                      {buffer.data(), static_cast<size_t>(size)}});
    return true;
  }
  if (size < 0 && errno == EINTR) return true;
  // After the command's end, only a background child can still hold the pipe: do not wait for that child.
  if (size < 0 && errno == EAGAIN && !execution.has_ended) return false;
  loop_.unwatch(pipe.get());
  pipe.reset();
  return false;
}

void Executions::on_taken(const OutputCredit& taken) {
  Execution* const execution = find(taken.number);
  if (execution == nullptr) return;
  execution->unread -= std::min<size_t>(execution->unread, taken.size);
  read(*execution);
}

void Executions::stop(const StopRun& order, double grace_seconds) {
  Execution* const execution = find(order.number);
  if (execution == nullptr) return;
  execution->kill_at = Deadline::after_seconds(grace_seconds);
  signal_group(execution->group, {SIGTERM, SIGCONT});
  // `horovodrun exec` has ended, so nothing reads the output.
  for (UniqueFd& pipe : execution->process.output) {
    if (pipe) loop_.unwatch(pipe.get());
    pipe.reset();
  }
  settle(*execution);
}

void Executions::on_reaped(pid_t pid, int status) {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const Execution& each) { return each.process.pid == pid; });
  if (found == running_.end()) return;
  found->process.pid = -1;
  found->has_ended = true;
  if (WIFSIGNALED(status))
    found->answer.signal = WTERMSIG(status);
  else
    found->answer.code = WEXITSTATUS(status);
  read(*found);
}

void Executions::settle(Execution& execution) {
  const bool is_waiting = execution.kill_at.time() != Deadline::never().time();
  if (execution.answer.number == 0 || is_waiting || !execution.has_ended) return;
  if (execution.process.output[0] || execution.process.output[1]) return;
  send_(execution.answer);
  execution.answer.number = 0;
}

Deadline Executions::deadline() const {
  Deadline next = Deadline::never();
  for (const Execution& each : running_) {
    if (each.kill_at.time() < next.time()) next = each.kill_at;
  }
  return next;
}

void Executions::on_deadline() {
  for (Execution& each : running_) {
    if (!each.kill_at.passed()) continue;
    each.kill_at = Deadline::never();
    signal_group(each.group, {SIGKILL});
    settle(each);
  }
}

}  // namespace hvd::launcher
