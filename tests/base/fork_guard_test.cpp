#include "base/fork_guard.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace hvd {
namespace {

GuardedFd guarded_socket() {
  const NoFork hold;
  return GuardedFd(UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)));
}

// Does not allocate, because a child of a multithreaded process must not.
int open_sockets() {
  int count = 0;
  for (int fd = 3; fd < 256; ++fd) {
    struct stat info {};
    if (::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode)) ++count;
  }
  return count;
}

// Returns the result of `look` in a forked child, 0 to 255.
template <typename Look>
int in_child(Look&& look) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(look());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST_CASE("a forked child has no guarded descriptor, whatever other threads do meanwhile") {
  const int before = open_sockets();
  std::atomic<bool> enough{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&enough] {
      while (!enough) {
        GuardedFd first = guarded_socket();
        GuardedFd second = std::move(first);
        first = guarded_socket();
      }
    });
  }
  int most = 0;
  const int forks = HVD_TEST_SANITIZED ? 40 : 200;
  for (int i = 0; i < forks; ++i) most = std::max(most, in_child(open_sockets));
  enough = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(most == before);
}

TEST_CASE("a child that lets go of its parent's guard closes nothing of its own") {
  GuardedFd guarded = guarded_socket();
  CHECK(in_child([&guarded] {
          const int number = guarded.get();
          const int own = ::open("/dev/null", O_RDONLY);
          if (own != number) return 1;
          guarded.reset();
          return ::fcntl(own, F_GETFD) >= 0 ? 0 : 2;
        }) == 0);
  CHECK(::fcntl(guarded.get(), F_GETFD) >= 0);
}

TEST_CASE("a grandchild keeps nothing of a child's") {
  CHECK(in_child([] {
          const GuardedFd own = guarded_socket();
          const int before = open_sockets();
          const pid_t grandchild = ::fork();
          if (grandchild == 0) ::_exit(open_sockets());
          int status = 0;
          if (::waitpid(grandchild, &status, 0) != grandchild || !WIFEXITED(status)) return 255;
          return WEXITSTATUS(status) - (before - 1);
        }) == 0);
}

}  // namespace
}  // namespace hvd
