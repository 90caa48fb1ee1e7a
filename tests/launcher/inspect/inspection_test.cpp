#include "launcher/inspect/inspection.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "base/text.h"
#include "net/abstract_names.h"

using namespace hvd;
using namespace hvd::launcher;
using namespace std::chrono_literals;

namespace {

// The abstract name at which the server of this process listens.
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
