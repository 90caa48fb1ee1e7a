#include "launcher/spawn/name_lookup.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include "tests/launcher/spawn/on_loop.h"

namespace hvd::launcher {
namespace {

TEST_CASE("an address needs no resolver") {
  const auto addresses = run_alone(look_up("192.0.2.7"));
  REQUIRE(addresses.ok());
  REQUIRE(addresses->size() == 1);
  CHECK((*addresses)[0].to_string() == "192.0.2.7");
  CHECK((*run_alone(look_up("fd00::1")))[0].is_v6());
}

TEST_CASE("a number is a name, and not an address") {
  CHECK(address_of_number("28") == "0.0.0.28");
  CHECK(address_of_number("0x7f.1") == "127.0.0.1");
  CHECK(address_of_number("192.0.2.7").empty());
  CHECK(address_of_number("n28").empty());
  const auto addresses = run_alone(look_up("28"));
  REQUIRE_FALSE(addresses.ok());
  CHECK(addresses.error().message().starts_with("the name '28' does not resolve ("));
}

TEST_CASE("localhost resolves to a loopback address") {
  const auto addresses = run_alone(look_up("localhost"));
  REQUIRE(addresses.ok());
  CHECK((*addresses)[0].is_loopback());
}

TEST_CASE("a name that does not resolve is named") {
  const auto addresses = run_alone(look_up("no-such-host.invalid"));
  REQUIRE_FALSE(addresses.ok());
  CHECK(addresses.error().message().starts_with(
      "the name 'no-such-host.invalid' does not resolve ("));
}

TEST_CASE("a name that is too long for DNS is shortened by its user") {
  const auto addresses = run_alone(look_up(std::string(64, 'j') + ".invalid"));
  REQUIRE_FALSE(addresses.ok());
  CHECK(addresses.error().message().ends_with(
      "' has 64 characters, and DNS takes 63: give the job or the host a shorter name"));
}

TEST_CASE("a lookup can be cancelled, and its loop destroyed under it") {
  {
    net::asio::io_context loop(1);
    const auto result =
        run_and_cancel(loop, look_up("no-such-host.invalid"), std::chrono::milliseconds(0));
    CHECK((!result || !result->ok()));
  }
  net::asio::io_context loop(1);
  std::optional<Result<std::vector<net::asio::ip::address>>> result;
  net::asio::co_spawn(loop, store_result(look_up("no-such-host.invalid"), result),
                      net::asio::detached);
  loop.poll();
}

TEST_CASE("this machine is local by each of its names, others are not") {
  char name[256] = {};
  REQUIRE(::gethostname(name, sizeof name - 1) == 0);
  for (const std::string host : {"localhost", "LOCALHOST", "127.0.0.1", "127.3.2.1", "::1",
                                 static_cast<const char*>(name)}) {
    CAPTURE(host);
    CHECK(run_alone(is_local_host(host)));
  }
  for (const std::string host : {"192.0.2.200", "no-such-host.invalid", "", "fd00::77"}) {
    CAPTURE(host);
    CHECK_FALSE(run_alone(is_local_host(host)));
  }
}

}  // namespace
}  // namespace hvd::launcher
