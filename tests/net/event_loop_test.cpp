#include "net/event_loop.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "net/interfaces.h"
#include "net/tcp_transport.h"

using namespace hvd;
using namespace hvd::net;

namespace {

void ring(int fd) {
  const uint64_t one = 1;
  REQUIRE(::write(fd, &one, sizeof one) == sizeof one);
}

void silence(int fd) {
  uint64_t value;
  [[maybe_unused]] const ssize_t got = ::read(fd, &value, sizeof value);
}

UniqueFd bell() { return UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

bool is_readable(int fd, int milliseconds) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, milliseconds) == 1;
}

}  // namespace

TEST_CASE("a loop is readable when it has something to dispatch, and only then") {
  auto loop = EventLoop::open();
  REQUIRE(loop.ok());
  const UniqueFd one = bell();
  int calls = 0;
  REQUIRE(loop->watch(one.get(), EPOLLIN, [&](uint32_t) {
    ++calls;
    silence(one.get());
  }));
  CHECK(!is_readable(loop->fd(), 0));
  CHECK(!loop->dispatch());
  ring(one.get());
  CHECK(is_readable(loop->fd(), 1000));
  CHECK(loop->dispatch());
  CHECK(calls == 1);
  CHECK(!is_readable(loop->fd(), 0));
  loop->unwatch(one.get());
  ring(one.get());
  CHECK(!is_readable(loop->fd(), 0));
}

TEST_CASE("a loop calls back as often as it is allowed to for what stays ready") {
  auto loop = EventLoop::open();
  REQUIRE(loop.ok());
  const UniqueFd one = bell();
  int calls = 0;
  REQUIRE(loop->watch(one.get(), EPOLLIN, [&](uint32_t) { ++calls; }));
  ring(one.get());
  CHECK(loop->dispatch());
  CHECK(calls == 1);
  CHECK(loop->dispatch(5));
  CHECK(calls == 6);
}

TEST_CASE("a callback may end its own watch and that of another that is ready too") {
  auto loop = EventLoop::open();
  REQUIRE(loop.ok());
  const UniqueFd one = bell(), other = bell();
  int calls = 0;
  const auto end_both = [&](uint32_t) {
    ++calls;
    loop->unwatch(one.get());
    loop->unwatch(other.get());
  };
  REQUIRE(loop->watch(one.get(), EPOLLIN, end_both));
  REQUIRE(loop->watch(other.get(), EPOLLIN, end_both));
  ring(one.get());
  ring(other.get());
  CHECK(loop->dispatch(3));
  CHECK(calls == 1);
}

TEST_CASE("an event of a descriptor is not given to the next one of the same number") {
  auto loop = EventLoop::open();
  REQUIRE(loop.ok());
  const UniqueFd one = bell();
  UniqueFd other = bell();
  const int number = other.get();
  int later = 0;
  const auto replace = [&](uint32_t) {
    silence(one.get());
    if (!other) return;
    loop->unwatch(number);
    other.reset();
    other = bell();
    REQUIRE(other.get() == number);
    REQUIRE(loop->watch(number, EPOLLIN, [&](uint32_t) { ++later; }));
  };
  REQUIRE(loop->watch(one.get(), EPOLLIN, replace));
  REQUIRE(loop->watch(number, EPOLLIN, [](uint32_t) {}));
  ring(one.get());
  ring(number);
  CHECK(loop->dispatch(3));
  CHECK(later == 0);
  ring(number);
  CHECK(loop->dispatch());
  CHECK(later == 1);
}

TEST_CASE("a watch without events stays silent, and a regular file cannot be watched") {
  auto loop = EventLoop::open();
  REQUIRE(loop.ok());
  const UniqueFd one = bell();
  ring(one.get());
  int calls = 0;
  REQUIRE(loop->watch(one.get(), 0, [&](uint32_t) { ++calls; }));
  CHECK(!loop->dispatch());
  loop->change(one.get(), EPOLLIN);
  loop->turn(Deadline::after_seconds(200));
  CHECK(calls == 1);
  loop->change(one.get(), 0);
  CHECK(!loop->dispatch());
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  CHECK_FALSE(loop->watch(file.get(), EPOLLIN, [](uint32_t) {}));
  CHECK(errno == EPERM);
}

TEST_CASE("a loop wakes once at its deadline") {
  auto loop = EventLoop::open();
  REQUIRE(loop.ok());
  loop->wake_at(Deadline::after_seconds(0.02));
  CHECK(is_readable(loop->fd(), 2000));
  CHECK(loop->dispatch());
  CHECK(!is_readable(loop->fd(), 0));
  loop->wake_at(Deadline::after_seconds(0.01));
  loop->wake_at(Deadline::never());
  CHECK(!is_readable(loop->fd(), 30));
}

TEST_CASE("a notification of another thread ends all waits, until the loop dispatches") {
  auto loop = EventLoop::open();
  REQUIRE(loop.ok());
  std::thread sleepers[2];
  for (std::thread& sleeper : sleepers) {
    sleeper = std::thread([&] { loop->wait(Deadline::never()); });
  }
  loop->notify();
  for (std::thread& sleeper : sleepers) sleeper.join();
  CHECK(is_readable(loop->fd(), 0));
  CHECK(loop->dispatch());
  CHECK(!is_readable(loop->fd(), 0));
}

TEST_CASE("other threads watch and unwatch while one dispatches") {
  auto loop = EventLoop::open();
  REQUIRE(loop.ok());
  std::atomic<int> calls{0};
  std::atomic<bool> over{false};
  std::thread other([&] {
    for (int i = 0; i < 2000; ++i) {
      const UniqueFd one = bell();
      REQUIRE(loop->watch(one.get(), EPOLLIN, [&](uint32_t) { ++calls; }));
      ring(one.get());
      loop->unwatch(one.get());
    }
    over.store(true);
    loop->notify();
  });
  while (!over.load()) loop->turn(Deadline::after_seconds(200));
  other.join();
  CHECK(calls.load() >= 0);
}

TEST_CASE("no loopback or link-local address is offered to other hosts") {
  const auto addresses = interface_addresses();
  REQUIRE(addresses.ok());
  for (const InterfaceAddress& address : *addresses) {
    const std::string text = endpoint_text(address.bytes, 1);
    CAPTURE(text);
    CHECK(text.rfind("127.", 0) != 0);
    CHECK(text.rfind("[::1]", 0) != 0);
    CHECK(text.rfind("[fe80", 0) != 0);
  }
  const auto with_loopback = interface_addresses(true);
  REQUIRE(with_loopback.ok());
  CHECK(with_loopback->size() > addresses->size());
}

TEST_CASE(
    "a connection over loopback stands and can be unpaced, and one to a closed port says why not") {
  auto listener = TcpListener::open();
  REQUIRE(listener.ok());
  const Bytes loopback{std::byte{127}, std::byte{0}, std::byte{0}, std::byte{1}};
  auto socket = start_connect(loopback, listener->port);
  REQUIRE(socket.ok());
  CHECK(is_readable(listener->socket.get(), 1000));
  CHECK(accept_tcp(*listener));
  CHECK(!accept_tcp(*listener));
  CHECK(connect_outcome(socket->get()) == 0);
  send_unpaced(socket->get());
  char control[16] = "";
  socklen_t size = sizeof control;
  CHECK(::getsockopt(socket->get(), IPPROTO_TCP, TCP_CONGESTION, control, &size) == 0);
  CHECK(std::string(control) != "bbr");
  const uint16_t port = listener->port;
  listener->socket.reset();
  auto refused = start_connect(loopback, port);
  if (refused.ok()) {
    pollfd entry{refused->get(), POLLOUT, 0};
    ::poll(&entry, 1, 1000);
    CHECK(connect_outcome(refused->get()) == ECONNREFUSED);
  }
  CHECK(endpoint_text(loopback, 80) == "127.0.0.1:80");
  CHECK(endpoint_text(Bytes(16), 80) == "[::]:80");
}

TEST_CASE("listeners at chosen addresses answer there alone, at one port") {
  const auto local = [](unsigned char last) {
    return Bytes{std::byte{127}, std::byte{0}, std::byte{0}, std::byte{last}};
  };
  const auto listeners = TcpListener::open_at({local(1), local(3), local(1)});
  REQUIRE(listeners.ok());
  REQUIRE(listeners->size() == 2);
  const uint16_t port = listeners->front().port;
  CHECK(listeners->back().port == port);
  for (const unsigned char last : {1, 2, 3}) {
    CAPTURE(int{last});
    auto socket = start_connect(local(last), port);
    int outcome = ECONNREFUSED;
    if (socket.ok()) {
      pollfd entry{socket->get(), POLLOUT, 0};
      CHECK(::poll(&entry, 1, 1000) == 1);
      outcome = connect_outcome(socket->get());
    }
    CHECK(outcome == (last == 2 ? ECONNREFUSED : 0));
  }
  const Accepted accepted = accept_from(listeners->front());
  CHECK(accepted.socket);
  CHECK(accepted.error == 0);
  CHECK(accepted.address == local(1));
  // A port in use at one of the addresses is not free for all addresses.
  const PortRange taken{port, port};
  CHECK(!TcpListener::open_at({local(4), local(3)}, taken).ok());
  CHECK(TcpListener::open_at({local(4)}, taken).ok());
  CHECK(TcpListener::open_at({}, taken)->empty());
}
