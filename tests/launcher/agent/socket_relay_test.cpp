#include "launcher/agent/socket_relay.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>

namespace hvd::launcher {
namespace {

// A relay between two socket pairs whose outer ends the test holds.
struct Relayed {
  Relayed() : loop(*net::EventLoop::open()) {
    UniqueFd inner[2];
    for (int i : {0, 1}) {
      int pair[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
      outer[i].reset(pair[0]);
      inner[i].reset(pair[1]);
    }
    relay.emplace(loop, std::move(inner[0]), std::move(inner[1]), [this] { relay.reset(); });
  }
  // Sends the text to one end and returns the text received at the other end.
  std::string pass(int from, const std::string& text) {
    std::string arrived;
    for (size_t sent = 0; arrived.size() < text.size();) {
      const ssize_t size = ::send(outer[from].get(), text.data() + sent, text.size() - sent, 0);
      if (size > 0) sent += static_cast<size_t>(size);
      loop.turn(Deadline::after_seconds(0));
      char buffer[5000];
      const ssize_t got = ::read(outer[1 - from].get(), buffer, sizeof buffer);
      if (got > 0) arrived.append(buffer, static_cast<size_t>(got));
    }
    return arrived;
  }
  void turn_until_over() {
    while (relay) loop.turn(Deadline::after_seconds(10));
  }

  net::EventLoop loop;
  UniqueFd outer[2];
  std::optional<SocketRelay> relay;
};

TEST_CASE("all bytes arrive at the other end, in both directions") {
  Relayed relayed;
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i) text += std::to_string(i);
  CHECK(relayed.pass(0, text) == text);
  CHECK(relayed.pass(1, text) == text);
  CHECK(relayed.relay);
}

TEST_CASE("the other direction goes on after the end of one, and both end the relay") {
  Relayed relayed;
  ::shutdown(relayed.outer[0].get(), SHUT_WR);
  CHECK(relayed.pass(1, "answer") == "answer");
  char byte = 0;
  CHECK(::read(relayed.outer[1].get(), &byte, 1) == 0);
  CHECK(relayed.relay);
  relayed.outer[1].reset();
  relayed.turn_until_over();
  CHECK(::read(relayed.outer[0].get(), &byte, 1) == 0);
}

TEST_CASE("a socket that breaks closes the other one") {
  Relayed relayed;
  // An unread byte makes the close a reset.
  CHECK(relayed.pass(0, "x") == "x");
  CHECK(::send(relayed.outer[1].get(), "y", 1, 0) == 1);
  relayed.loop.turn(Deadline::after_seconds(10));
  relayed.outer[0].reset();
  relayed.turn_until_over();
  char byte = 0;
  CHECK(::read(relayed.outer[1].get(), &byte, 1) == 0);
}

}  // namespace
}  // namespace hvd::launcher
