#include "net/data_loop.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "net/interfaces.h"
#include "net/tcp_transport.h"

using namespace hvd;
using namespace hvd::net;

namespace {

class Counter final : public DataLoop::Source {
 public:
  explicit Counter(int fd) : fd_(fd) {}
  void on_events(uint32_t) override {
    ++calls;
    uint64_t value;
    [[maybe_unused]] const ssize_t got = ::read(fd_, &value, sizeof value);
  }
  int calls = 0;

 private:
  int fd_;
};

bool is_readable(int fd, int milliseconds) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, milliseconds) == 1;
}

}  // namespace

TEST_CASE("a data loop is readable when it has something to dispatch, and only then") {
  auto loop = DataLoop::open();
  REQUIRE(loop.ok());
  const UniqueFd bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  Counter counter(bell.get());
  REQUIRE(loop->add(bell.get(), EPOLLIN, counter).ok());
  CHECK(!is_readable(loop->fd(), 0));
  CHECK(!loop->dispatch());
  const uint64_t one = 1;
  REQUIRE(::write(bell.get(), &one, sizeof one) == sizeof one);
  CHECK(is_readable(loop->fd(), 1000));
  CHECK(loop->dispatch());
  CHECK(counter.calls == 1);
  CHECK(!is_readable(loop->fd(), 0));
  loop->remove(bell.get());
  REQUIRE(::write(bell.get(), &one, sizeof one) == sizeof one);
  CHECK(!is_readable(loop->fd(), 0));
}

TEST_CASE("a data loop wakes once at its deadline") {
  auto loop = DataLoop::open();
  REQUIRE(loop.ok());
  loop->wake_at(Deadline::after_seconds(0.02));
  CHECK(is_readable(loop->fd(), 2000));
  CHECK(loop->dispatch());
  CHECK(!is_readable(loop->fd(), 0));
  loop->wake_at(Deadline::after_seconds(0.01));
  loop->wake_at(Deadline::never());
  CHECK(!is_readable(loop->fd(), 30));
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
