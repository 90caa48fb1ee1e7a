#include "launcher/spawn/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "net/notification.h"

namespace hvd::launcher {

namespace asio = net::asio;

namespace {

// The time that the end of a stream waits for the exit status of the process.
constexpr std::chrono::milliseconds kEndOfProcess{500};

// The three standard streams: the program's ends and the launcher's.
struct Streams {
  UniqueFd stream, child_stream, errors, child_errors;
};

// Moves a descriptor above 2. A launcher without standard streams may get the numbers 0 to 2, where
// the program's standard streams would overwrite it.
Status take_above_standard(UniqueFd& to, int fd) {
  to.reset(fd);
  if (fd > STDERR_FILENO) return {};
  to.reset(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  return to ? Status() : system_error("cannot duplicate a descriptor", errno);
}

Result<Streams> open_streams() {
  Streams streams;
  int pair[2];
  // A socket, since a write to an ended program is an error there. With a pipe it raises SIGPIPE in
  // the launcher.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return system_error("cannot make a socket pair", errno);
  }
  streams.stream.reset(pair[0]);
  HVD_RETURN_IF_ERROR(take_above_standard(streams.child_stream, pair[1]));
  if (::pipe2(pair, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
  streams.errors.reset(pair[0]);
  HVD_RETURN_IF_ERROR(take_above_standard(streams.child_errors, pair[1]));
  return streams;
}

std::vector<std::string> environment_of(const ChildCommand& command) {
  const auto& extra = command.environment;
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment()) {
    bool is_replaced = !command.inherits_environment;
    for (const auto& [extra_name, extra_value] : extra) is_replaced |= name == extra_name;
    if (!is_replaced) entries.push_back(cat(name, "=", value));
  }
  for (const auto& [name, value] : extra) entries.push_back(cat(name, "=", value));
  return entries;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

Result<pid_t> spawn_program(const ChildCommand& command, const Streams& streams) {
  std::vector<std::string> arguments = command.arguments;
  std::vector<std::string> variables = environment_of(command);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, streams.child_stream.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, streams.child_stream.get(), STDOUT_FILENO);
  const UniqueFd& errors = command.joins_errors ? streams.child_stream : streams.child_errors;
  ::posix_spawn_file_actions_adddup2(&actions, errors.get(), STDERR_FILENO);
  // A scheduler may send signals for the ranks or the launcher to all processes of the job. A program
  // that carries a link, such as ssh or kubectl, outlives them: the link ends with the job.
  sigset_t held, all;
  ::sigemptyset(&held);
  for (const int number : {SIGUSR1, SIGUSR2}) ::sigaddset(&held, number);
  if (command.end == ChildEnd::kTerminate) {
    for (const int number : {SIGINT, SIGTERM}) ::sigaddset(&held, number);
  }
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &held);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, arguments[0].c_str(), &actions, &attributes,
                                   pointers_to(arguments).data(), pointers_to(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) return system_error(cat("cannot start ", arguments[0]), error);
  return pid;
}

std::string signal_text(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? cat(number, " (SIG", name, ")") : cat(number);
}

}  // namespace

// This state outlives the ChildProcess while the process lives: the handler that reaps it holds it.
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
    // The process is not reaped yet, so no other process can have its pid.
    const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0) return system_error("cannot watch a child process (pidfd_open)", errno);
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    watch.assign(fd);
    watch.async_wait(asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const net::error_code&) { self->reap(); });
    return {};
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
    net::error_code ignored;
    watch.close(ignored);
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

  // Reads the available bytes; returns false at the end of the pipe. Other processes may keep the
  // write end open for long.
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
  asio::posix::stream_descriptor watch;
  net::Notification end_known;
  LastWords words;
  bool is_reaped = false;
  bool is_closed = false;
};

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(asio::any_io_executor executor,
                                                          const ChildCommand& command) {
  HVD_ASSIGN_OR_RETURN(Streams streams, open_streams());
  HVD_ASSIGN_OR_RETURN(const pid_t pid, spawn_program(command, streams));
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

}  // namespace hvd::launcher
