#include "launcher/observe/loop_watch.h"

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <memory>

namespace hvd::launcher {
namespace {

TEST_CASE(
    "a blocked loop is reported before the lease ends, and may be destroyed before its watch") {
  auto loop = std::make_unique<net::asio::io_context>();
  const auto said = std::make_shared<std::promise<std::string>>();
  auto first = said->get_future();
  {
    const LoopWatch watch(loop->get_executor(), 0.6,
                          [said](const std::string& sentence) { said->set_value(sentence); });
    REQUIRE(first.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
    CHECK(first.get() ==
          "the launcher has been blocked for 0.4 s; a file system that stalls or a lack of free "
          "memory can block it; after 0.6 s (--heartbeat-timeout) the agents end their ranks");
  }
  loop.reset();
}

TEST_CASE("a loop without a lease needs no watch") {
  net::asio::io_context loop;
  const LoopWatch watch(loop.get_executor(), 0, [](const std::string&) { FAIL("there is none"); });
  CHECK(loop.poll() == 0);
}

}  // namespace
}  // namespace hvd::launcher
