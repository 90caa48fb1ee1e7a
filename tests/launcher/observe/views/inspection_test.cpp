#include "launcher/observe/views/inspection.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "base/text.h"
#include "idle.h"
#include "launcher/observe/views/running_launchers.h"
#include "net/packet_socket.h"

using namespace hvd;
using namespace hvd::launcher;
using namespace std::chrono_literals;

namespace {

// The abstract name on which this process's server listens.
std::string name_of_server() {
  std::ifstream table("/proc/net/unix");
  const std::string prefix = cat("@", inspection_prefix(), ::getpid(), "/");
  for (std::string word; table >> word;) {
    if (word.starts_with(prefix)) return word.substr(1);
  }
  return {};
}

}  // namespace

TEST_CASE("without a free descriptor the server of questions waits, and then answers") {
  net::asio::io_context loop;
  std::string heard;
  const auto server = InspectionServer::open(
      loop.get_executor(), [&](std::string request, net::StreamSocket&) -> net::Task<void> {
        heard = std::move(request);
        loop.stop();
        co_return;
      });
  REQUIRE(server.ok());
  auto caller = net::connect_to_listener(name_of_server(), SOCK_STREAM);
  REQUIRE(caller);
  REQUIRE(::send(caller->socket.get(), "ps\n", 3, MSG_NOSIGNAL) == 3);
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
  rlimit none = old;
  none.rlim_cur = 3;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const size_t turns = loop.run_for(200ms);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &old) == 0);
  CHECK(turns < 5);
  CHECK(heard.empty());
  loop.run_for(5s);
  CHECK(heard == "ps");
}

TEST_CASE("a launcher that does not answer hides no other one") {
  std::vector<RunningLauncher> launchers;
  std::vector<UniqueFd> peers;
  for (const char* pid : {"1", "2", "3"}) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    launchers.push_back({pid, UniqueFd(ends[0])});
    peers.emplace_back(ends[1]);
  }
  peers[0].reset();  // this launcher has ended
  REQUIRE(::send(peers[2].get(), "{}\n", 3, MSG_NOSIGNAL) == 3);
  REQUIRE(::shutdown(peers[2].get(), SHUT_WR) == 0);
  const double began = idle_seconds();
  const auto answers = ask_each(launchers, "ps --json", 0.2);
  CHECK(idle_seconds() - began < 5);
  REQUIRE(answers.size() == 3);
  CHECK(answers[0].status().code() == Code::kUnavailable);
  CHECK(answers[1].status().code() == Code::kDeadlineExceeded);
  CHECK(
      answers[1].status().message().starts_with("horovodrun with pid 2 does not answer; it may "));
  REQUIRE(answers[2].ok());
  CHECK(*answers[2] == "{}\n");
}
