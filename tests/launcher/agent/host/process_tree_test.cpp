#include "launcher/agent/host/process_tree.h"

#include <dirent.h>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <utility>

#include "base/unique_fd.h"

namespace {

// Runs before each scan of /proc, which begins with opendir().
std::function<void()> before_scan;
// Runs once after the next scan, which ends with closedir().
std::function<void()> after_scan;

}  // namespace

extern "C" DIR* opendir(const char* path) {
  if (before_scan) before_scan();
  static const auto real = reinterpret_cast<DIR* (*)(const char*)>(::dlsym(RTLD_NEXT, "opendir"));
  return real(path);
}

extern "C" int closedir(DIR* directory) {
  static const auto real = reinterpret_cast<int (*)(DIR*)>(::dlsym(RTLD_NEXT, "closedir"));
  const int result = real(directory);
  if (const auto hook = std::exchange(after_scan, nullptr)) hook();
  return result;
}

namespace hvd::launcher {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }
  UniqueFd reader, writer;
};

pid_t start_sleeper() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(60);
    for (;;) ::pause();
  }
  return pid;
}

// Starts a sibling of this process with that PID. Returns -1 if the kernel or the user may not.
pid_t start_sibling(pid_t pid) {
  clone_args arguments{};
  arguments.flags = CLONE_PARENT;
  arguments.set_tid = reinterpret_cast<uint64_t>(&pid);
  arguments.set_tid_size = 1;
  return static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
}

TEST_CASE("a process that gets the pid of an ended descendant after the scan is not signalled") {
  Pipe question, answer;
  const pid_t agent = ::fork();
  if (agent == 0) {
    become_subreaper();
    const pid_t found = start_sleeper();
    ::usleep(50'000);  // the kernel counts the starts of processes in ticks of 10 ms
    bool has_sibling = false;
    after_scan = [&] {
      ::kill(found, SIGKILL);
      ::waitpid(found, nullptr, 0);
      const pid_t sibling = start_sibling(found);
      if (sibling == 0) {
        question.writer.reset();
        char byte = 0;
        while (::read(question.reader.get(), &byte, 1) == 1) {
          if (::write(answer.writer.get(), &byte, 1) != 1) break;
        }
        ::_exit(0);
      }
      has_sibling = sibling > 0;
    };
    signal_descendants({SIGKILL});
    ::_exit(has_sibling ? 0 : 1);
  }
  answer.writer.reset();
  int status = -1;
  REQUIRE(::waitpid(agent, &status, 0) == agent);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) != 0) {
    MESSAGE("SKIP: only root can choose the pid of a process, on Linux 5.5 and later");
    return;
  }
  char byte = 'x';
  REQUIRE(::write(question.writer.get(), &byte, 1) == 1);
  pollfd entry{answer.reader.get(), POLLIN, 0};
  REQUIRE(::poll(&entry, 1, 30'000) == 1);
  CHECK(::read(answer.reader.get(), &byte, 1) == 1);  // 0 bytes: the process was killed
  question.writer.reset();
  CHECK(::waitpid(-1, &status, 0) > 0);
}

TEST_CASE("a child that a group's leader forks between the scan and the signal is signalled") {
  const pid_t agent = ::fork();
  if (agent == 0) {
    ::alarm(30);
    ::signal(SIGTERM, SIG_DFL);  // without doctest's handler
    become_subreaper();
    Pipe question, answer;
    char byte = 0;
    const pid_t leader = ::fork();
    ::setpgid(leader, 0);
    if (leader == 0) {
      ::alarm(60);
      if (::read(question.reader.get(), &byte, 1) == 1) start_sleeper();
      if (::write(answer.writer.get(), &byte, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    after_scan = [&] {
      if (::write(question.writer.get(), &byte, 1) != 1) ::_exit(1);
      if (::read(answer.reader.get(), &byte, 1) != 1) ::_exit(1);
    };
    signal_descendants({SIGTERM});
    int ended = 0;
    for (int status = 0; ::wait(&status) > 0;) ended += WIFSIGNALED(status) ? 1 : 0;
    ::_exit(ended == 2 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(agent, &status, 0) == agent);
  CHECK(status == 0);  // signal 14: a process got no signal
}

int started = -1;

void start_process(int) {
  const pid_t pid = start_sleeper();
  if (::write(started, &pid, sizeof pid) != sizeof pid) ::_exit(1);
}

TEST_CASE("a process that a handler of the signal starts is not signalled") {
  const pid_t agent = ::fork();
  if (agent == 0) {
    ::alarm(30);
    ::signal(SIGTERM, SIG_DFL);  // without doctest's handler
    become_subreaper();
    Pipe ready, helpers;
    started = helpers.writer.get();
    char byte = 0;
    const pid_t leader = ::fork();
    ::setpgid(leader, 0);
    if (leader == 0) {
      ::alarm(60);
      struct sigaction action {};
      action.sa_handler = start_process;
      action.sa_flags = SA_RESETHAND | SA_NODEFER;  // the child ends by SIGTERM
      ::sigaction(SIGTERM, &action, nullptr);
      if (::write(ready.writer.get(), &byte, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    if (::read(ready.reader.get(), &byte, 1) != 1) ::_exit(1);
    pid_t helper = -1;
    int scans = 0;
    before_scan = [&] {
      // The helper runs before another scan.
      if (++scans == 2 && ::read(helpers.reader.get(), &helper, sizeof helper) < 0) ::_exit(1);
    };
    signal_descendants({SIGTERM});
    if (scans < 2 && ::read(helpers.reader.get(), &helper, sizeof helper) < 0) ::_exit(1);
    ::kill(leader, SIGKILL);  // the leader's child becomes a child of this process
    ::waitpid(leader, nullptr, 0);
    ::kill(helper, SIGKILL);
    int status = 0;
    ::_exit(::waitpid(helper, &status, 0) == helper && status == SIGKILL ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(agent, &status, 0) == agent);
  CHECK(status == 0);
}

TEST_CASE("all descendants are signalled, also those whose parent has ended") {
  const pid_t agent = ::fork();
  if (agent == 0) {
    become_subreaper();
    const pid_t parent = ::fork();
    if (parent == 0) {
      start_sleeper();
      ::_exit(0);
    }
    ::waitpid(parent, nullptr, 0);
    start_sleeper();
    const size_t count = descendants().size();
    signal_descendants({SIGKILL});
    int killed = 0;
    for (int status = 0; ::wait(&status) > 0;) killed += WIFSIGNALED(status) ? 1 : 0;
    ::_exit(count == 2 && killed == 2 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(agent, &status, 0) == agent);
  CHECK(status == 0);
}

}  // namespace
}  // namespace hvd::launcher
