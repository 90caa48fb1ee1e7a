#include "net/blocking_stream.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include "base/text.h"
#include "net/resolve.h"

namespace hvd::net {
namespace {

Endpoint unused_name(std::string_view purpose) {
  return *parse_endpoint(cat("unix:@horovod-net-test-", purpose, "-", ::getpid()));
}

std::array<UniqueFd, 2> socket_pair() {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

}  // namespace

TEST_CASE("the race of connects passes over addresses that refuse") {
  const auto fd = listen_on(*numeric_address(*parse_endpoint("tcp:127.0.0.1:0")));
  REQUIRE(fd.ok());
  const auto good = local_address(fd->get());
  REQUIRE(good.ok());
  const std::vector<SocketAddress> addresses{*numeric_address(unused_name("refused")), *good};
  CHECK(BlockingStream::connect(addresses, Deadline::after_seconds(5)).ok());
}

TEST_CASE("where nobody listens, the connect says so at once") {
  const std::vector addresses{*numeric_address(unused_name("nobody"))};
  const auto stream = BlockingStream::connect(addresses, Deadline::never());
  REQUIRE_FALSE(stream.ok());
  CHECK(stream.status().message() == "cannot connect: Connection refused");
}

TEST_CASE("a read ends at its deadline and tells the end of the stream") {
  auto [near, far] = socket_pair();
  BlockingStream stream(std::move(near));
  std::array<std::byte, 8> buffer;
  CHECK(stream.read_some(buffer, Deadline::after_seconds(0.02)).status().code() ==
        Code::kDeadlineExceeded);
  REQUIRE(::write(far.get(), "abc", 3) == 3);
  CHECK(stream.read_some(buffer, Deadline::after_seconds(5)).value_or(0) == 3);
  far.reset();
  CHECK(stream.read_some(buffer, Deadline::after_seconds(5)).value_or(9) == 0);
}

TEST_CASE("a connection's read waits in recv at first, and still ends at its deadline") {
  const auto listener = listen_on(*numeric_address(*parse_endpoint("tcp:127.0.0.1:0")));
  REQUIRE(listener.ok());
  const std::vector addresses{*local_address(listener->get())};
  auto stream = BlockingStream::connect(addresses, Deadline::after_seconds(5));
  REQUIRE(stream.ok());
  std::array<std::byte, 8> buffer;
  const auto start = Clock::now();
  CHECK(stream->read_some(buffer, Deadline::after_seconds(1.2)).status().code() ==
        Code::kDeadlineExceeded);
  CHECK(Clock::now() - start >= std::chrono::milliseconds(1200));
  const UniqueFd far(::accept(listener->get(), nullptr, nullptr));
  REQUIRE(::write(far.get(), "abc", 3) == 3);
  CHECK(stream->read_some(buffer, Deadline::after_seconds(200)).value_or(0) == 3);
  CHECK(stream->read_some(buffer, Deadline::after_seconds(0)).status().code() ==
        Code::kDeadlineExceeded);
}

TEST_CASE("a read ends at its deadline also where a signal comes again and again") {
  const auto listener = listen_on(*numeric_address(*parse_endpoint("tcp:127.0.0.1:0")));
  REQUIRE(listener.ok());
  const std::vector addresses{*local_address(listener->get())};
  auto stream = BlockingStream::connect(addresses, Deadline::after_seconds(5));
  REQUIRE(stream.ok());
  struct sigaction before {
  }, ignoring{};
  ignoring.sa_handler = [](int) {};
  REQUIRE(::sigaction(SIGALRM, &ignoring, &before) == 0);
  const itimerval often{{0, 50'000}, {0, 50'000}}, never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  std::array<std::byte, 8> buffer;
  CHECK(stream->read_some(buffer, Deadline::after_seconds(1.2)).status().code() ==
        Code::kDeadlineExceeded);
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
}

TEST_CASE("a write that does not fit waits for the peer, and heeds what it says meanwhile") {
  auto [near, far] = socket_pair();
  BlockingStream stream(std::move(near));
  const Bytes large(8 << 20);
  bool interrupted = true;
  CHECK(stream.write(as_bytes("head"), large, Deadline::after_seconds(0.02), interrupted).code() ==
        Code::kDeadlineExceeded);
  CHECK_FALSE(interrupted);
  REQUIRE(::write(far.get(), "stop", 4) == 4);
  CHECK(stream.write({}, large, Deadline::after_seconds(5), interrupted).ok());
  CHECK(interrupted);
  far.reset();
  CHECK(stream.write({}, large, Deadline::after_seconds(5), interrupted).code() ==
        Code::kUnavailable);
}

TEST_CASE("the socket file of a dead listener is taken over, that of a living one is not") {
  const Endpoint endpoint = *parse_endpoint(cat("unix:/tmp/horovod-net-test-", ::getpid()));
  const SocketAddress address = *numeric_address(endpoint);
  {
    const auto first = listen_on(address);
    REQUIRE(first.ok());
    const auto second = listen_on(address);
    REQUIRE_FALSE(second.ok());
    CHECK(second.status().message().find(to_string(endpoint)) != std::string::npos);
  }
  CHECK(listen_on(address).ok());
  ::unlink(endpoint.path.c_str());
}

TEST_CASE("listening on all interfaces takes IPv4") {
  const auto addresses = resolve_to_listen(*parse_endpoint("tcp::0"));
  REQUIRE(addresses.ok());
  const auto fd = listen_on(addresses->front());
  REQUIRE(fd.ok());
  Endpoint endpoint = to_endpoint(*local_address(fd->get()));
  endpoint.host = "127.0.0.1";
  const std::vector loopback{*numeric_address(endpoint)};
  CHECK(BlockingStream::connect(loopback, Deadline::after_seconds(5)).ok());
}

}  // namespace hvd::net
