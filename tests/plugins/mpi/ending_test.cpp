#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "mpi/job.h"

using namespace std::chrono_literals;

namespace {

constexpr auto kUsual = 100ms;
constexpr char kHere[] = "cmd=barrier_in\n";
constexpr char kLeaves[] = "cmd=finalize\n";

int rank_end = -1;  // socket between MPI_Finalize and its server

// Simulates hydra's server: the first barrier completes at once, because all other ranks wait there.
std::string serve(int fd) {
  std::string heard;
  char text[64];
  for (ssize_t size; (size = ::read(fd, text, sizeof text)) > 0;) {
    const std::string word(text, static_cast<size_t>(size));
    const bool is_again = heard.find(word) != std::string::npos;
    heard += word;
    if (is_again) continue;
    const std::string answer = word == kHere ? "cmd=barrier_out\n" : "cmd=finalize_ack\n";
    if (::write(fd, answer.data(), answer.size()) < 0) break;
  }
  ::close(fd);
  return heard;
}

void make_server(int* server_end) {
  int both[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) == 0);
  *server_end = both[0];
  rank_end = both[1];
  ::setenv("PMI_FD", std::to_string(rank_end).c_str(), 1);
}

void work(std::chrono::milliseconds time) {
  std::atomic<unsigned> looks{0};
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) ++looks;
}

std::string ask(const std::string& word) {
  char text[64];
  if (::write(rank_end, word.data(), word.size()) < 0) return "";
  const ssize_t size = ::read(rank_end, text, sizeof text);
  return std::string(text, size > 0 ? static_cast<size_t>(size) : 0);
}

std::string answers;

int finalize(std::chrono::milliseconds connections, std::chrono::milliseconds rest) {
  work(connections);
  answers = ask(kHere);
  work(rest);
  answers += ask(kLeaves);
  return ::close(rank_end);
}

// Returns the commands that the server has received from a rank that ends.
std::string received_from(int (*end)()) {
  int server_end = -1;
  make_server(&server_end);
  std::string heard;
  std::thread server([&] { heard = serve(server_end); });
  hvd::mpi::end_mpi(end, true, 0, kUsual);
  server.join();
  return heard;
}

}  // namespace

// This case comes first, because a multithreaded process should not fork.
TEST_CASE("a rank that looks for the end of a connection for ever leaves once all are there") {
  int server_end = -1;
  make_server(&server_end);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(server_end);
    hvd::mpi::end_mpi([] { return work(1h), 0; }, true, 7, kUsual);
    ::_exit(1);
  }
  ::close(rank_end);
  CHECK(serve(server_end) == std::string(kHere) + kLeaves);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("a rank that ends its connections, late or not, and has work to do then ends as usual") {
  for (int (*end)() :
       {+[] { return finalize(0ms, 0ms); }, +[] { return finalize(500ms, 2500ms); },
        +[] { return finalize(0ms, 2500ms); }, +[] { return finalize(1500ms, 0ms); }}) {
    CHECK(received_from(end) == std::string(kHere) + kLeaves);
    CHECK(answers == "cmd=barrier_out\ncmd=finalize_ack\n");
  }
}
