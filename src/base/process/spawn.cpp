#include "base/process/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "base/check.h"
#include "base/text.h"

namespace hvd {
namespace {

constexpr size_t kMostOutput = 1 << 20;
constexpr int kEndedBySignal = 128;

class SpawnActions {
 public:
  SpawnActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;

  void set(int stream, const std::optional<int>& descriptor) {
    if (!descriptor) return;
    if (*descriptor != kDevNull) {
      ::posix_spawn_file_actions_adddup2(&actions_, *descriptor, stream);
    } else {
      ::posix_spawn_file_actions_addopen(&actions_, stream, "/dev/null",
                                         stream == STDIN_FILENO ? O_RDONLY : O_WRONLY, 0);
    }
  }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

class SpawnAttributes {
 public:
  explicit SpawnAttributes(const SpawnOptions& options) {
    ::posix_spawnattr_init(&attributes_);
    sigset_t blocked, all;
    ::sigemptyset(&blocked);
    for (const int number : options.blocked_signals) ::sigaddset(&blocked, number);
    ::posix_spawnattr_setsigmask(&attributes_, &blocked);
    short flags = POSIX_SPAWN_SETSIGMASK;
    if (options.has_default_actions) {
      ::sigfillset(&all);
      ::posix_spawnattr_setsigdefault(&attributes_, &all);
      flags |= POSIX_SPAWN_SETSIGDEF;
    }
    if (options.group == SpawnGroup::kOwnSession) flags |= POSIX_SPAWN_SETSID;
    if (options.group == SpawnGroup::kOwn) flags |= POSIX_SPAWN_SETPGROUP;
    ::posix_spawnattr_setflags(&attributes_, flags);
  }
  ~SpawnAttributes() { ::posix_spawnattr_destroy(&attributes_); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

}  // namespace

Environment overlay(Environment base, const Environment& over) {
  for (const auto& [name, value] : over) {
    bool is_there = false;
    for (auto& [old_name, old_value] : base) {
      if (old_name != name) continue;
      old_value = value;
      is_there = true;
    }
    if (!is_there) base.emplace_back(name, value);
  }
  return base;
}

std::vector<std::string> environment_strings(const Environment& environment) {
  std::vector<std::string> texts;
  texts.reserve(environment.size());
  for (const auto& [name, value] : environment) texts.push_back(cat(name, "=", value));
  return texts;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.data()));
  pointers.push_back(nullptr);
  return pointers;
}

Result<pid_t> spawn_program(const SpawnOptions& options) {
  SpawnActions actions;
  actions.set(STDIN_FILENO, options.input);
  actions.set(STDOUT_FILENO, options.output);
  actions.set(STDERR_FILENO, options.errors);
  const SpawnAttributes attributes(options);
  const std::string& program = options.arguments.front();
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, program.c_str(), actions.get(), attributes.get(),
                                   pointers_to(options.arguments).data(),
                                   pointers_to(environment_strings(options.environment)).data());
  if (const std::string advice = clone3_advice(error); !advice.empty())
    return permission_denied(cat("cannot start ", program, ": ", advice));
  if (error != 0) return system_error(cat("cannot start ", program), error);
  return pid;
}

int wait_for_exit(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? kEndedBySignal + WTERMSIG(status) : WEXITSTATUS(status);
}

Result<std::string> output_of(SpawnOptions options, Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(Pipe pipe, open_pipe());
  options.input = kDevNull;
  options.output = pipe.write.get();
  if (!options.errors) options.errors = options.output;
  options.group = SpawnGroup::kOwn;
  HVD_ASSIGN_OR_RETURN(const pid_t pid, spawn_program(options));
  pipe.write.reset();
  std::string text;
  std::array<char, 4096> buffer{};
  bool is_late = false;
  while (text.size() < kMostOutput) {
    pollfd readable{pipe.read.get(), POLLIN, 0};
    const int ready = ::poll(&readable, 1, deadline.poll_timeout());
    if (ready < 0 && errno == EINTR) continue;
    is_late = ready == 0;
    if (ready <= 0) break;
    const ssize_t size = ::read(pipe.read.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(size));
  }
  ::kill(-pid, SIGKILL);  // the program has ended its output, has written too much, or is late
  wait_for_exit(pid);
  if (is_late) {
    return deadline_exceeded(cat(join(options.arguments, " "), " did not answer in time"));
  }
  return text;
}

Status move_above_standard(UniqueFd& descriptor) {
  if (descriptor.get() > STDERR_FILENO) return {};
  const int moved = ::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (moved < 0) return system_error("cannot duplicate a descriptor", errno);
  descriptor.reset(moved);
  return {};
}

Result<Pipe> open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  HVD_RETURN_IF_ERROR(move_above_standard(pipe.read));
  HVD_RETURN_IF_ERROR(move_above_standard(pipe.write));
  return pipe;
}

void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // open() takes the lowest free number, which is `fd`, since all lower numbers are open.
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);
  }
}

}  // namespace hvd
