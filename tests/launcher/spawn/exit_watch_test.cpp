#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <iterator>
#include <memory>
#include <vector>

#include "base/process/spawn.h"
#include "launcher/spawn/child_process.h"
#include "tests/conformance/spawner_conformance.h"

namespace hvd::launcher {
namespace {

// Makes pidfd_open fail in this process, as on Linux before 5.3. Returns false without seccomp.
bool lose_pidfds() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 &&
         ::syscall(SYS_pidfd_open, ::getpid(), 0) == -1 && errno == ENOSYS;
}

constexpr int kNoSeccomp = 77;

// Returns the exit code of a child without pidfds that runs `body`: 0 if `body` returned true.
template <typename Body>
int without_pidfds(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(!lose_pidfds() ? kNoSeccomp : body() ? 0 : 1);
  return wait_for_exit(child);
}

// Returns whether the ends of three children are seen; one child has ended before it is watched.
bool sees_ends() {
  net::asio::io_context loop(1);
  int ended = 0;
  std::vector<std::unique_ptr<ExitWatch>> watches;
  for (const char* script : {"exit 0", "sleep 0.1", "sleep 0.3"}) {
    const auto pid = spawn_program({.arguments = {"/bin/sh", "-c", script}});
    if (!pid.ok()) return false;
    siginfo_t info{};
    if (watches.empty()) ::waitid(P_PID, static_cast<id_t>(*pid), &info, WEXITED | WNOWAIT);
    auto& watch = watches.emplace_back(std::make_unique<ExitWatch>(loop.get_executor()));
    const Status begun = watch->begin(*pid, [&ended, &watch = *watch, child = *pid] {
      watch.close();
      ended += wait_for_exit(child) == 0 ? 1 : 0;
    });
    if (!begun.ok()) return false;
  }
  loop.run_for(std::chrono::seconds(30));
  return ended == 3 && loop.stopped();
}

TEST_CASE("the end of each child is seen") { CHECK(sees_ends()); }

TEST_CASE("the end of each child is seen on a kernel without pidfds") {
  const int code = without_pidfds(sees_ends);
  if (code == kNoSeccomp) {
    MESSAGE("SKIP: no seccomp filter works here");
    return;
  }
  CHECK(code == 0);
}

TEST_CASE("a stream to a program ends with the program on a kernel without pidfds") {
  const int code = without_pidfds([] {
    net::asio::io_context loop(1);
    ChildCommand command;
    command.arguments = {"/bin/sh", "-c", "echo up; echo no >&2; exit 3"};
    auto child = ChildProcess::start(loop.get_executor(), command);
    if (!child.ok()) return false;
    const auto text = run_on(loop, read_to_end(**child));
    return text.ok() && *text == "up\n" && (*child)->last_words() == "no; ended with exit code 3";
  });
  if (code == kNoSeccomp) {
    MESSAGE("SKIP: no seccomp filter works here");
    return;
  }
  CHECK(code == 0);
}

}  // namespace
}  // namespace hvd::launcher
