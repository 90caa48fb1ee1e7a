#include "launcher/agent/preflight/master_port_reservation.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>

using namespace hvd;
using namespace hvd::launcher;

namespace {

Bytes loopback(int last) { return {std::byte{127}, std::byte{0}, std::byte{0}, std::byte(last)}; }

size_t descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

// A reservation at 127.0.0.1, on a loop that the test drives.
struct Reserved {
  Reserved() {
    const Status status = reservation.open({}, {{"127.0.0.1", "lo", loopback(1)}});
    REQUIRE_MESSAGE(status.ok(), status.message());
  }
  // A connection that is established or has failed.
  GuardedFd dial(int last = 1) const {
    auto socket = net::start_connect(loopback(last), reservation.candidates().port);
    REQUIRE(socket.ok());
    pollfd ready{socket->get(), POLLOUT, 0};
    ::poll(&ready, 1, 5000);
    return *std::move(socket);
  }
  bool gets_the_nonce(const GuardedFd& client) {
    const Deadline deadline = Deadline::after_seconds(5);
    Nonce heard{};
    while (!deadline.passed()) {
      loop.dispatch();
      if (reservation.deadline().passed()) reservation.on_deadline();
      const ssize_t size = ::recv(client.get(), heard.data(), heard.size(), MSG_DONTWAIT);
      if (size >= 0) return heard == reservation.candidates().nonce;
      pollfd ready{client.get(), POLLIN, 0};
      ::poll(&ready, 1, 10);
    }
    return false;
  }

  net::EventLoop loop = *net::EventLoop::open();
  MasterPortReservation reservation{loop};
};

}  // namespace

TEST_CASE("the reserved port is open at the tested addresses alone") {
  Reserved reserved;
  const GuardedFd client = reserved.dial();
  CHECK(reserved.gets_the_nonce(client));
  CHECK(net::connect_outcome(reserved.dial(2).get()) == ECONNREFUSED);
}

TEST_CASE("a port that is taken at another address is not reserved") {
  const auto other = net::TcpListener::open_at({loopback(2)});
  REQUIRE(other.ok());
  const auto port = other->front().port;
  auto loop = net::EventLoop::open();
  MasterPortReservation reservation(*loop);
  CHECK_FALSE(reservation.open({port, port}, {{"127.0.0.1", "lo", loopback(1)}}).ok());
}

TEST_CASE("strangers take a bounded number of descriptors, and each client gets the nonce") {
  Reserved reserved;
  std::vector<GuardedFd> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(reserved.dial());
    reserved.loop.dispatch();
  }
  const size_t before = descriptors();
  const GuardedFd client = reserved.dial();
  CHECK(reserved.gets_the_nonce(client));
  CHECK(reserved.gets_the_nonce(strangers.front()));
  reserved.reservation.release();
  CHECK(before - descriptors() < 100);
}

TEST_CASE("without a free descriptor the reservation waits, and then accepts the client") {
  Reserved reserved;
  const GuardedFd client = reserved.dial();
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
  rlimit none = old;
  none.rlim_cur = 3;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  int turns = 0;
  while (turns < 100 && reserved.loop.dispatch()) ++turns;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &old) == 0);
  CHECK(turns < 3);
  CHECK(reserved.gets_the_nonce(client));
}
