#include "runtime/bootstrap/served_store.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/text.h"
#include "net/blocking_stream.h"
#include "net/socket_address.h"

namespace hvd::runtime {
namespace {

Secret test_secret() { return *Secret::from_hex("00112233445566778899aabbccddeeff"); }

UniqueFd connect_to(const net::Endpoint& endpoint) {
  const auto address = net::numeric_address(endpoint);
  REQUIRE(address.has_value());
  UniqueFd fd(::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(fd);
  if (::connect(fd.get(), address->get(), address->size) != 0) fd.reset();
  return fd;
}

bool has_ended(const UniqueFd& fd) {
  pollfd entry{fd.get(), POLLIN | POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

TEST_CASE("the store of rank 0 listens only on the addresses that it publishes") {
  const auto store = ServedStore::start(test_secret(), WorkerSettings());
  REQUIRE_MESSAGE(store.ok(), store.status().message());
  for (const net::Endpoint& endpoint : (*store)->endpoints()) CHECK(connect_to(endpoint));
  // An address of this host that no interface lists.
  net::Endpoint other = (*store)->endpoints().front();
  other.host = "127.0.0.2";
  CHECK_FALSE(connect_to(other));
}

TEST_CASE("idle strangers leave most descriptors to the program of rank 0, and shut no rank out") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit low = before;
  low.rlim_cur = 800;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  {
    const auto store = ServedStore::start(test_secret(), WorkerSettings());
    REQUIRE(store.ok());
    const auto& endpoints = (*store)->endpoints();
    // A process unrelated to this one holds a descriptor at each end.
    std::vector<UniqueFd> strangers;
    for (int i = 0; i < 300; ++i) strangers.push_back(connect_to(endpoints.front()));
    const Deadline deadline = Deadline::after_seconds(8);
    const auto ended = [&] { return std::count_if(strangers.begin(), strangers.end(), has_ended); };
    while (ended() < 90 && !deadline.passed()) ::usleep(10'000);
    CHECK(ended() >= 90);
    const Invitation invited{test_secret().hex(), endpoints};
    CHECK(reach_store(invited, 1, 0, Deadline::after_seconds(5)).ok());
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

}  // namespace
}  // namespace hvd::runtime
