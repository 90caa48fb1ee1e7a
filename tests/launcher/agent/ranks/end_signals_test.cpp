#include "launcher/agent/ranks/end_signals.h"

#include <doctest/doctest.h>

using namespace hvd::launcher;

namespace {

using Pids = std::vector<pid_t>;

constexpr pid_t kAgent = 1;
const std::string kSpawned(
    "python\0-c\0from multiprocessing.spawn import spawn_main\0--multiprocessing-fork\0", 78);

EndCandidate plain(pid_t pid, pid_t parent, const std::string& command,
                   const std::string& program = "/usr/bin/python3.11") {
  return {.pid = pid, .parent = parent, .command = command + '\0', .program = program};
}

EndCandidate shell(pid_t pid, pid_t parent, bool has_trap = false) {
  EndCandidate process = plain(pid, parent, "train.sh", "/usr/bin/bash");
  process.handles_sigterm = has_trap;
  return process;
}

EndCandidate handling(pid_t pid, pid_t parent, const std::string& command = "train") {
  EndCandidate process = plain(pid, parent, command);
  process.handles_sigterm = true;
  return process;
}

EndCandidate joined(pid_t pid, pid_t parent) {
  EndCandidate process = plain(pid, parent, "train");
  process.has_joined = true;
  return process;
}

}  // namespace

TEST_CASE("the process that has called hvd.init() is chosen, also below one that handles SIGTERM") {
  CHECK(end_targets({joined(10, kAgent)}) == Pids{10});
  CHECK(end_targets({shell(10, kAgent), joined(11, 10), handling(12, 11)}) == Pids{11});
  CHECK(end_targets({handling(10, kAgent, "wrapper"), joined(11, 10)}) == Pids{11});
  CHECK(end_targets({shell(10, kAgent), joined(11, 10), joined(12, 10), joined(13, 12)}) ==
        Pids{11, 12});
}

TEST_CASE("without hvd.init() the topmost process with a handler is chosen") {
  CHECK(end_targets({handling(10, kAgent)}) == Pids{10});
  CHECK(end_targets({handling(10, kAgent, "torchrun"), handling(11, 10)}) == Pids{10});
  CHECK(end_targets({plain(10, kAgent, "conda"), plain(11, 10, "wrapper"), handling(12, 11)}) ==
        Pids{12});
  CHECK(end_targets({shell(10, kAgent), handling(11, 10, "a"), handling(12, 10, "b")}) ==
        Pids{11, 12});
}

TEST_CASE(
    "a shell that runs a trap late and `timeout`, which signals the workers too, are not chosen") {
  EndCandidate timeout = handling(10, kAgent, "timeout");
  timeout.program = "/usr/bin/timeout";
  CHECK(end_targets({timeout, handling(11, 10), handling(12, 11)}) == Pids{11});
  timeout.program = "/usr/bin/coreutils";  // the first argument of coreutils names the program
  CHECK(end_targets({timeout, handling(11, 10)}) == Pids{11});
  CHECK(end_targets({shell(10, kAgent, true), handling(11, 10)}) == Pids{11});
  CHECK(end_targets({shell(10, kAgent, true), plain(11, 10, "a.out")}).empty());
  // A subshell is a fork of its shell.
  CHECK(end_targets({shell(10, kAgent), shell(11, 10), handling(12, 11)}) == Pids{12});
}

TEST_CASE("forks of a program, workers of multiprocessing, and what they start are not chosen") {
  CHECK(end_targets({plain(10, kAgent, "train"), handling(11, 10), handling(12, 10)}).empty());
  EndCandidate spawned = handling(11, 10);
  spawned.command = kSpawned;
  CHECK(end_targets({plain(10, kAgent, "train"), spawned}).empty());
  CHECK(end_targets({plain(10, kAgent, "train"), spawned, handling(12, 11, "ffmpeg")}).empty());
  spawned.command = std::string("python\0-m\0joblib.externals.loky.backend.popen_loky_posix\0", 56);
  CHECK(end_targets({plain(10, kAgent, "train"), spawned}).empty());
  CHECK(end_targets({handling(10, kAgent), handling(11, 10), spawned}) == Pids{10});
}

TEST_CASE("without such a process none is chosen") {
  CHECK(end_targets({}).empty());
  CHECK(end_targets({plain(10, kAgent, "a.out", "/home/me/a.out")}).empty());
}
