#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/process/signals.h"
#include "base/process/spawn.h"
#include "base/status.h"

using namespace hvd;

namespace {

std::string read_all(int fd) {
  std::string text;
  std::array<char, 256> buffer;
  for (ssize_t size = 0; (size = ::read(fd, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(size));
  }
  return text;
}

// Starts a shell script with these options, and returns its output.
std::string printed_by(const std::string& script, SpawnOptions options) {
  auto pipe = open_pipe();
  REQUIRE(pipe.ok());
  options.arguments = {"/bin/sh", "-c", script};
  options.output = pipe->write.get();
  const auto pid = spawn_program(options);
  REQUIRE(pid.ok());
  pipe->write.reset();
  std::string text = read_all(pipe->read.get());
  CHECK(wait_for_exit(*pid) == 0);
  return text;
}

Deadline soon() { return Deadline::after_seconds(200); }

}  // namespace

TEST_CASE("A signal is named, or numbered when it has no name") {
  CHECK(signal_name(SIGTERM) == "SIGTERM");
  CHECK(signal_text(SIGTERM) == "15 (SIGTERM)");
  CHECK(signal_name(250) == "250");
  CHECK(signal_text(250) == "250");
}

TEST_CASE("The ends of a pipe are above the standard streams, and closed on exec") {
  const int saved = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  ::close(STDIN_FILENO);
  auto pipe = open_pipe();
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
  REQUIRE(pipe.ok());
  for (const UniqueFd* end : {&pipe->read, &pipe->write}) {
    CHECK(end->get() > STDERR_FILENO);
    CHECK(::fcntl(end->get(), F_GETFD) == FD_CLOEXEC);
  }
}

TEST_CASE("A program has the streams and the environment of its options") {
  auto input = open_pipe();
  REQUIRE(input.ok());
  REQUIRE(::write(input->write.get(), "word\n", 5) == 5);
  input->write.reset();
  CHECK(printed_by("read x; echo $x $A",
                   {.environment = {{"A", "7"}}, .input = input->read.get()}) == "word 7\n");
  CHECK(printed_by("read x; echo $?; readlink /proc/self/fd/2",
                   {.input = kDevNull, .errors = kDevNull}) == "1\n/dev/null\n");
}

TEST_CASE("A program blocks the signals of its options alone, and ignores none when told so") {
  sigset_t blocked, before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, &before);
  const auto handler = ::signal(SIGUSR1, SIG_IGN);
  const std::string script = "grep -E 'SigBlk|SigIgn' /proc/self/status | cut -f2";
  const auto mask = [](int number) { return 1ull << (number - 1); };
  const auto masks = [&](const SpawnOptions& options) {
    const std::string text = printed_by(script, options);
    return std::pair(std::stoull(text, nullptr, 16),
                     std::stoull(text.substr(text.find('\n')), nullptr, 16));
  };
  const std::vector<int> ignored = ignored_signals();
  CHECK(std::ranges::find(ignored, SIGUSR1) != ignored.end());
  const auto [blocked_there, ignored_there] = masks({.blocked_signals = {SIGUSR2}});
  CHECK(blocked_there == mask(SIGUSR2));
  CHECK((ignored_there & mask(SIGUSR1)) != 0);
  CHECK((masks({.has_default_actions = true}).second & mask(SIGUSR1)) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    reset_signals(ignored_signals());
    sigset_t now;
    ::sigprocmask(SIG_BLOCK, nullptr, &now);
    ::_exit(ignored_signals().empty() && ::sigisemptyset(&now) == 1 ? 0 : 1);
  }
  CHECK(wait_for_exit(child) == 0);
  ::signal(SIGUSR1, handler);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("A program has the process group and session of its options") {
  const std::string script = "cut -d' ' -f1,5,6 /proc/$$/stat";
  const auto ids = [&](SpawnGroup group) {
    std::array<int, 3> found{};  // pid, process group, session
    const std::string text = printed_by(script, {.group = group});
    REQUIRE(std::sscanf(text.c_str(), "%d %d %d", &found[0], &found[1], &found[2]) == 3);
    return found;
  };
  const auto inherited = ids(SpawnGroup::kInherited);
  CHECK(inherited[1] == ::getpgrp());
  const auto own = ids(SpawnGroup::kOwn);
  CHECK((own[1] == own[0] && own[2] == ::getsid(0)));
  const auto session = ids(SpawnGroup::kOwnSession);
  CHECK((session[1] == session[0] && session[2] == session[0]));
}

TEST_CASE("The output of a program is read until it ends, or until the deadline") {
  CHECK(*output_of({.arguments = {"/bin/sh", "-c", "echo a; echo b >&2; exit 3"}}, soon()) ==
        "a\nb\n");
  CHECK(*output_of({.arguments = {"/bin/sh", "-c", "echo a; echo b >&2"}, .errors = kDevNull},
                   soon()) == "a\n");
  const auto late =
      output_of({.arguments = {"/bin/sleep", "100"}}, Deadline::after_seconds(0.1)).status();
  CHECK(late == deadline_exceeded("/bin/sleep 100 did not answer in time"));
}

TEST_CASE("A program that is not there is named") {
  const auto none = output_of({.arguments = {"no-such-program"}}, soon());
  CHECK(none.status() == not_found("cannot start no-such-program: No such file or directory"));
}

TEST_CASE("A container whose filter refuses clone3 is named") {
  const pid_t child = ::fork();
  if (child == 0) {
    std::array<sock_filter, 4> rules = {
        sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{static_cast<unsigned short>(rules.size()), rules.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      ::_exit(2);
    }
    const auto started = spawn_program({.arguments = {"/bin/true"}});
    const bool named = !started.ok() && started.status().message().starts_with(
                                            "cannot start /bin/true: the system call clone3 is "
                                            "refused here, as old container runtimes do; ");
    if (!named) ::_exit(1);
    try {
      std::thread([] {}).join();
    } catch (const std::system_error& error) {
      const bool is_known = status_of(error).message().starts_with(
          "no thread can be started: the system call clone3 is refused here, ");
      ::_exit(is_known ? 0 : 3);
    }
    ::_exit(4);
  }
  CHECK(wait_for_exit(child) == 0);
}

TEST_CASE("The end of a program is its exit code, or 128 and the signal") {
  for (const auto& [script, code] : {std::pair("exit 7", 7), std::pair("kill -9 $$", 137)}) {
    const auto pid = spawn_program({.arguments = {"/bin/sh", "-c", script}});
    REQUIRE(pid.ok());
    CHECK(wait_for_exit(*pid) == code);
  }
}

TEST_CASE("a thread that is started while all signals are blocked leaves them to the others") {
  sigset_t before, inside, after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    const AllSignalsBlocked blocked;
    std::thread([&] { ::pthread_sigmask(SIG_SETMASK, nullptr, &inside); }).join();
  }
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int number : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1}) {
    CHECK(::sigismember(&inside, number) == 1);
    CHECK(::sigismember(&after, number) == ::sigismember(&before, number));
  }
}

TEST_CASE("an environment over another wins, and of two equal names in it the last") {
  CHECK(overlay({{"B", "1"}, {"A", "1"}}, {{"B", "2"}, {"C", "1"}, {"C", "2"}}) ==
        Environment{{"B", "2"}, {"A", "1"}, {"C", "2"}});
}
