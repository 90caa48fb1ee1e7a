#include "launcher/spawn/script_run.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/process/signals.h"
#include "base/process/spawn.h"
#include "base/settings.h"
#include "launcher/spawn/child_process.h"
#include "launcher/spawn/last_words.h"
#include "net/notification.h"

namespace hvd::launcher {

namespace asio = net::asio;

namespace {

// The time to wait after SIGKILL: a process blocked in the kernel by a file system ends later.
constexpr std::chrono::milliseconds kEndAfterKill{500};
// Maximum number of bytes per read: more than a pipe holds. A process that left the group may write without end.
constexpr size_t kMostAtEnd = 1 << 20;

Result<pid_t> start_shell(const std::string& command, const Pipe& output, const Pipe& errors) {
  return spawn_program({.arguments = {"/bin/sh", "-c", command},
                        .environment = environment(),
                        .input = kDevNull,
                        .output = output.write.get(),
                        .errors = errors.write.get(),
                        .group = SpawnGroup::kOwnSession,
                        .has_default_actions = true});
}

}  // namespace

// Each handler has a shared_ptr to this state, so the state outlives the ScriptRun until the last handler has run.
struct ScriptRun::State : std::enable_shared_from_this<State> {
  State(asio::any_io_executor executor, pid_t process, ScriptLimits limits, ErrorLine on_error_line)
      : pid(process),
        limits(limits),
        output(executor),
        errors(executor),
        watch(executor),
        timer(executor),
        ended(executor),
        words([line_of_error = std::move(on_error_line)](std::string_view line) {
          if (line_of_error) line_of_error(line.substr(0, line.find_last_not_of("\r\n") + 1));
          return true;
        }) {}

  // Kills a script that still runs, for example after the end of the loop.
  ~State() {
    if (is_reaped) return;
    ::kill(-pid, SIGKILL);
    ::waitpid(pid, nullptr, WNOHANG);
  }

  Status begin(Pipe from_output, Pipe from_errors) {
    output.assign(from_output.read.release());
    errors.assign(from_errors.read.release());
    net::error_code error;
    output.non_blocking(true, error);
    errors.non_blocking(true, error);
    const auto self = shared_from_this();
    HVD_RETURN_IF_ERROR(watch.begin(pid, [self] { self->reap(); }));
    timer.expires_after(limits.time);
    timer.async_wait([self](const net::error_code& failed) {
      if (failed || self->is_ended) return;
      self->answer.is_late = true;
      self->end_group();
    });
    wait_for_output();
    wait_for_errors();
    return {};
  }

  void wait_for_output() {
    output.async_wait(asio::posix::stream_descriptor::wait_read,
                      [self = shared_from_this()](const net::error_code& failed) {
                        if (!failed && !self->is_ended && self->read_output()) {
                          self->wait_for_output();
                        }
                      });
  }

  void wait_for_errors() {
    errors.async_wait(asio::posix::stream_descriptor::wait_read,
                      [self = shared_from_this()](const net::error_code& failed) {
                        if (!failed && !self->is_ended && self->read_errors()) {
                          self->wait_for_errors();
                        }
                      });
  }

  // read_output() and read_errors() read the available bytes, and return false at the end of the pipe.
  bool read_output() {
    return read(output, [this](std::string_view bytes) {
      const size_t room = limits.output - std::min(limits.output, answer.output.size());
      answer.is_cut |= bytes.size() > room;
      answer.output += bytes.substr(0, room);
    });
  }
  bool read_errors() {
    return read(errors, [this](std::string_view bytes) {
      words.add(bytes);
      ends_line = bytes.ends_with('\n');
    });
  }

  // Limits the bytes of one call, so that a script that writes without end does not block the loop.
  template <typename Take>
  bool read(asio::posix::stream_descriptor& pipe, const Take& take) {
    net::error_code error;
    for (size_t total = 0; total < kMostAtEnd;) {
      const size_t size = pipe.read_some(asio::buffer(buffer), error);
      if (error) return error == asio::error::would_block;
      total += size;
      take(std::string_view(buffer.data(), size));
    }
    return true;
  }

  void reap() {
    siginfo_t info{};
    if (is_ended || is_reaped) return;
    // WNOWAIT keeps the shell as a zombie, so no other process group can have its number when kill() is called.
    if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
      return;
    }
    ::kill(-pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    is_reaped = true;
    answer.has_failed = info.si_code != CLD_EXITED || info.si_status != 0;
    if (info.si_code == CLD_EXITED) {
      words.set_exit_code(info.si_status);
    } else {
      words.set_signal(signal_text(info.si_status));
    }
    finish();
  }

  // Kills the group, and waits a moment for the end of the shell.
  void end_group() {
    if (is_ended || is_ending) return;
    is_ending = true;
    ::kill(-pid, SIGKILL);
    timer.expires_after(kEndAfterKill);
    timer.async_wait([self = shared_from_this()](const net::error_code& failed) {
      if (failed || self->is_ended) return;
      self->answer.has_failed = true;
      self->finish();
    });
  }

  void finish() {
    read_output();
    read_errors();
    if (!ends_line) words.add("\n");
    answer.last_words = words.text();
    if (answer.is_cut) answer.output.resize(answer.output.rfind('\n') + 1);
    is_ended = true;
    net::error_code ignored;
    output.close(ignored);
    errors.close(ignored);
    watch.close();
    timer.cancel();
    ended.notify();
  }

  // `state` keeps the object alive, even before the coroutine begins to run.
  static net::Task<ScriptAnswer> wait(std::shared_ptr<State> state) {
    bool is_cancelled = false;
    while (!state->is_ended && !is_cancelled) is_cancelled = !co_await state->ended.wait();
    if (state->is_ended) co_return std::move(state->answer);
    ScriptAnswer cancelled;
    cancelled.is_killed = true;
    co_return cancelled;
  }

  const pid_t pid;
  const ScriptLimits limits;
  asio::posix::stream_descriptor output, errors;
  ExitWatch watch;
  asio::steady_timer timer;
  net::Notification ended;
  LastWords words;
  ScriptAnswer answer;
  std::array<char, 16384> buffer;
  bool ends_line = true;   // standard error ended with a newline
  bool is_ending = false;  // the group got SIGKILL
  bool is_reaped = false;
  bool is_ended = false;
};

Result<std::unique_ptr<ScriptRun>> ScriptRun::start(asio::any_io_executor executor,
                                                    const std::string& command, ScriptLimits limits,
                                                    ErrorLine on_error_line) {
  HVD_ASSIGN_OR_RETURN(Pipe output, open_pipe());
  HVD_ASSIGN_OR_RETURN(Pipe errors, open_pipe());
  HVD_ASSIGN_OR_RETURN(const pid_t pid, start_shell(command, output, errors));
  auto state = std::make_shared<State>(std::move(executor), pid, limits, std::move(on_error_line));
  HVD_RETURN_IF_ERROR(state->begin(std::move(output), std::move(errors)));
  return std::unique_ptr<ScriptRun>(new ScriptRun(std::move(state)));
}

ScriptRun::~ScriptRun() { kill(); }

net::Task<ScriptAnswer> ScriptRun::end() { return State::wait(state_); }

void ScriptRun::kill() {
  if (state_->is_ended) return;
  state_->answer.is_killed = true;
  state_->end_group();
}

pid_t ScriptRun::pid() const { return state_->pid; }

}  // namespace hvd::launcher
