#include "launcher/spawn/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits/descriptor_limit.h"
#include "base/process/signals.h"
#include "base/process/spawn.h"
#include "base/settings.h"
#include "base/unique_fd.h"
#include "net/notification.h"

namespace hvd::launcher {

namespace asio = net::asio;

namespace {

bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

}  // namespace

Status ExitWatch::begin(pid_t pid, std::function<void()> on_exit) {
  // Nothing has reaped the process yet, so its pid cannot belong to another process.
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd >= 0) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    pidfd_.assign(fd);
    pidfd_.async_wait(asio::posix::stream_descriptor::wait_read,
                      [on_exit = std::move(on_exit)](const net::error_code& failed) {
                        if (!failed) on_exit();
                      });
    return {};
  }
  if (errno != ENOSYS && errno != EPERM) {
    return system_error("cannot watch a child process (pidfd_open)", errno);
  }
  net::error_code failed;
  child_signals_.add(SIGCHLD, failed);
  if (failed) return net::to_status("cannot watch a child process (SIGCHLD)", failed);
  // The process may have ended before the handler was set.
  asio::post(pidfd_.get_executor(), [this, pid, on_exit = std::move(on_exit)]() mutable {
    look(pid, std::move(on_exit));
  });
  return {};
}

void ExitWatch::look(pid_t pid, std::function<void()> on_exit) {
  if (has_ended(pid)) return on_exit();
  child_signals_.async_wait(
      [this, pid, on_exit = std::move(on_exit)](const net::error_code& failed, int) mutable {
        if (!failed) look(pid, std::move(on_exit));
      });
}

void ExitWatch::close() {
  net::error_code ignored;
  pidfd_.close(ignored);
  child_signals_.clear(ignored);
  child_signals_.cancel(ignored);
}

namespace {

// After the end of the stream, the time to wait for the process's exit status.
constexpr std::chrono::milliseconds kEndOfProcess{500};

// The three standard streams: the program's ends and the launcher's ends.
struct Streams {
  UniqueFd stream, child_stream, errors, child_errors;
};

Result<Streams> open_streams() {
  Streams streams;
  // A socket, since writing to an ended program then returns an error. A pipe would raise SIGPIPE
  // in the launcher.
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return system_error("cannot make a socket pair", errno);
  }
  streams.stream.reset(pair[0]);
  streams.child_stream.reset(pair[1]);
  HVD_RETURN_IF_ERROR(move_above_standard(streams.child_stream));
  HVD_ASSIGN_OR_RETURN(Pipe errors, open_pipe());
  streams.errors = std::move(errors.read);
  streams.child_errors = std::move(errors.write);
  return streams;
}

Result<pid_t> start_child(const ChildCommand& command, const Streams& streams) {
  const UniqueFd& errors = command.joins_errors ? streams.child_stream : streams.child_errors;
  SpawnOptions options{
      .arguments = command.arguments,
      .environment = command.inherits_environment ? overlay(environment(), command.environment)
                                                  : command.environment,
      .input = streams.child_stream.get(),
      .output = streams.child_stream.get(),
      .errors = errors.get(),
      .group = SpawnGroup::kOwnSession,
      // A scheduler may send signals for the ranks or the launcher to all processes of the job. A
      // program that carries a link, for example ssh or kubectl, must survive these signals: the link
      // ends with the job.
      .blocked_signals = {SIGUSR1, SIGUSR2},
      .has_default_actions = true};
  if (command.end == ChildEnd::kTerminate) {
    options.blocked_signals.insert(options.blocked_signals.end(), {SIGINT, SIGTERM});
  }
  // The child gets the descriptor limit with which this process was started. Ranks inherit it from a local agent, or
  // from srun.
  const FirstDescriptorLimit limit;
  return spawn_program(options);
}

}  // namespace

// The handler that reaps the process keeps this object alive after the ChildProcess is destroyed.
struct ChildProcess::State : std::enable_shared_from_this<State> {
  State(asio::any_io_executor executor, pid_t process, const ChildCommand& command, Streams streams)
      : pid(process),
        end(command.end),
        stream(executor),
        errors(executor, streams.errors.release()),
        watch(executor),
        end_known(executor),
        words(command.filter) {
    stream.assign(asio::local::stream_protocol(), streams.stream.release());
  }

  Status watch_process() {
    return watch.begin(pid, [self = shared_from_this()] { self->reap(); });
  }

  void reap() {
    siginfo_t info{};
    if (is_reaped || ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG) != 0) return;
    if (info.si_pid == 0) return;
    is_reaped = true;
    if (info.si_code == CLD_EXITED) {
      words.set_exit_code(info.si_status);
    } else {
      words.set_signal(signal_text(info.si_status));
    }
    drain_errors();
    watch.close();
    end_known.notify();
  }

  // Waits until the pipe is readable and then reads directly, so that the handler of the process's
  // end can read the rest of the pipe in order.
  void read_errors() {
    errors.async_wait(asio::posix::stream_descriptor::wait_read,
                      [self = shared_from_this()](const net::error_code& error) {
                        if (!error && self->drain_errors()) self->read_errors();
                      });
  }

  // Reads the available bytes; returns false at the end of the pipe. The pipe may stay open after
  // the child's exit, because other processes may have inherited its write end.
  bool drain_errors() {
    net::error_code error;
    std::array<char, 1024> buffer;
    errors.non_blocking(true, error);
    while (!error) {
      const size_t size = errors.read_some(asio::buffer(buffer), error);
      if (!error) words.add({buffer.data(), size});
    }
    return error == asio::error::would_block;
  }

  void close() {
    if (is_closed) return;
    is_closed = true;
    net::error_code ignored;
    stream.close(ignored);
    errors.close(ignored);
    if (!is_reaped && end == ChildEnd::kTerminate) ::kill(-pid, SIGHUP);
    end_known.notify();
  }

  const pid_t pid;
  const ChildEnd end;
  asio::local::stream_protocol::socket stream;
  asio::posix::stream_descriptor errors;
  ExitWatch watch;
  net::Notification end_known;
  LastWords words;
  bool is_reaped = false;
  bool is_closed = false;
};

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(asio::any_io_executor executor,
                                                          const ChildCommand& command) {
  HVD_ASSIGN_OR_RETURN(Streams streams, open_streams());
  HVD_ASSIGN_OR_RETURN(const pid_t pid, start_child(command, streams));
  auto state = std::make_shared<State>(std::move(executor), pid, command, std::move(streams));
  if (Status status = state->watch_process(); !status.ok()) {
    ::kill(-pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return status;
  }
  state->read_errors();
  return std::unique_ptr<ChildProcess>(new ChildProcess(std::move(state)));
}

ChildProcess::~ChildProcess() { close(); }

net::Task<Result<size_t>> ChildProcess::read_some(std::span<std::byte> buffer) {
  const std::shared_ptr<State> state = state_;
  const auto [error, size] = co_await state->stream.async_read_some(
      asio::buffer(buffer.data(), buffer.size()), net::use_tuple);
  if (!error) co_return size;
  if (state->is_closed) co_return aborted("the stream was closed");
  // A program that ends before it has read all input resets the socket.
  if (error != asio::error::eof && error != asio::error::connection_reset) {
    co_return net::to_status("cannot read from the process", error);
  }
  if (!state->is_reaped) co_await state->end_known.wait_until(Clock::now() + kEndOfProcess);
  co_return size_t{0};
}

net::Task<Status> ChildProcess::write(ByteView bytes) {
  const std::shared_ptr<State> state = state_;
  const auto [error, size] = co_await asio::async_write(
      state->stream, asio::buffer(bytes.data(), bytes.size()), net::use_tuple);
  if (!error) co_return Status();
  if (state->is_closed) co_return aborted("the stream was closed");
  co_return net::to_status("cannot write to the process", error);
}

void ChildProcess::close() { state_->close(); }

std::string ChildProcess::last_words() const { return state_->words.text(); }

int ChildProcess::pid() const { return state_->pid; }

bool ChildProcess::has_ended() const { return state_->words.ended(); }

std::optional<int> ChildProcess::exit_code() const { return state_->words.exit_code(); }

}  // namespace hvd::launcher
