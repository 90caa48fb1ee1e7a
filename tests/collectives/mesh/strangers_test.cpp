// Processes outside the job that connect to the ranks' listeners. They neither use up descriptors
// nor keep ranks from connecting to each other, and they make no rank spin.
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <future>

#include "collectives/checks.h"
#include "collectives/mesh/local_rendezvous.h"
#include "net/packet_socket.h"

using namespace hvd;
using namespace hvd::test;

namespace {

using Strangers = std::vector<UniqueFd>;

collectives::PeerRecord record_of(World& world, int32_t rank) {
  const auto bytes = world.store.get(cat("mesh/0/rank/", rank), Deadline::after_seconds(200));
  REQUIRE(bytes.ok());
  return collectives::PeerRecord::decode(*bytes).value();
}

sockaddr_in loopback(uint32_t host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl((127U << 24) + host);
  return address;
}

// A socket with a separate address, which no rank publishes.
UniqueFd stranger() {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in own = loopback(2, 0);
  ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own);
  return socket;
}

void knock(const UniqueFd& socket, uint16_t port) {
  const sockaddr_in there = loopback(1, port);
  ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there);
}

// Waits until at most `most` connections are open. Returns the number of open connections.
size_t wait_until_open(const Strangers& strangers, size_t most, double seconds) {
  const Deadline deadline = Deadline::after_seconds(seconds);
  std::vector<pollfd> open;
  for (const UniqueFd& socket : strangers) open.push_back({socket.get(), POLLRDHUP, 0});
  while (open.size() > most && !deadline.passed()) {
    ::poll(open.data(), open.size(), deadline.poll_timeout());
    std::erase_if(open, [](const pollfd& one) { return one.revents != 0; });
  }
  return open.size();
}

// Waits for a message of rank 0.
Status hear(Rank& rank) {
  bool heard = false;
  rank.on_message = [&](int32_t, ByteView) { heard = true; };
  return rank.drive([&] { return heard; });
}

}  // namespace

TEST_CASE("few of many strangers stay, not for long, and ranks meet nevertheless") {
  World world({0, 1});
  world.times.proof = 2;
  std::promise<void> knocked;
  std::shared_future<void> have_knocked = knocked.get_future().share();
  std::atomic<bool> are_gone = false;
  size_t at_first = 0, at_the_end = 0;
  std::thread crowd([&] {
    const uint16_t port = record_of(world, 0).port;
    Strangers strangers;
    for (int i = 0; i < 120; ++i) {
      strangers.push_back(stranger());
      knock(strangers.back(), port);
    }
    knocked.set_value();
    at_first = wait_until_open(strangers, 20, 8);
    // The rank sleeps, and only its timer wakes it.
    at_the_end = wait_until_open(strangers, 0, 30);
    are_gone = true;
    const UniqueFd last = stranger();
    knock(last, port);  // wakes the rank
  });
  require_all_ok(world.run(
      [&](Rank& rank) -> Status {
        have_knocked.wait();
        HVD_RETURN_IF_ERROR(pass_barrier(rank));
        if (rank.rank() == 1) return hear(rank);
        HVD_RETURN_IF_ERROR(rank.drive([&] { return are_gone.load(); }));
        return rank.mesh().send(1, {});
      },
      60));
  crowd.join();
  CHECK(at_first <= 20);
  CHECK(at_the_end == 0);
}

TEST_CASE("a rank that may open no more descriptors does not spin, and accepts later") {
  World world({0, 1});
  std::promise<void> limited;
  const UniqueFd visitor = stranger();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  uint64_t looks = 0;
  require_all_ok(world.run([&](Rank& rank) -> Status {
    HVD_RETURN_IF_ERROR(pass_barrier(rank));
    if (rank.rank() == 1) {
      const uint16_t port = record_of(world, 0).port;
      limited.get_future().wait();
      knock(visitor, port);
      ::poll(nullptr, 0, 300);
      HVD_RETURN_IF_ERROR(rank.mesh().send(0, {}));
      return hear(rank);
    }
    const UniqueFd free(::dup(0));
    const rlimit none{static_cast<rlim_t>(free.get()), before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    limited.set_value();
    bool heard = false;
    rank.on_message = [&](int32_t, ByteView) { heard = true; };
    rank.spins = 0;
    const Status driven = rank.drive([&] { return ++looks > 10'000 || heard; });
    ::setrlimit(RLIMIT_NOFILE, &before);
    HVD_RETURN_IF_ERROR(driven);
    const std::array<char, 200> rubbish{};
    ::send(visitor.get(), rubbish.data(), rubbish.size(), MSG_NOSIGNAL);
    HVD_RETURN_IF_ERROR(rank.drive([&] {
      pollfd entry{visitor.get(), POLLRDHUP, 0};
      return ::poll(&entry, 1, 0) == 1;
    }));
    return rank.mesh().send(1, {});
  }));
  CHECK(looks < 100);
}

TEST_CASE("few strangers wait at the rendezvous of a host, and a rank is admitted nevertheless") {
  auto rendezvous = collectives::RendezvousSocket::open();
  REQUIRE(rendezvous.ok());
  const collectives::Credentials credentials{
      .job = "0123456789abcdef", .generation = 0, .secret = test_secret()};
  const std::vector<int32_t> members{1};
  const std::vector<collectives::PeerRecord> records(2);
  Strangers strangers;
  for (int i = 0; i < 100; ++i) {
    auto socket = net::connect_for_packets(rendezvous->name);
    REQUIRE(socket.ok());
    strangers.push_back(std::move(*socket));
  }
  std::thread leader([&] {
    collectives::LocalAcceptor acceptor(rendezvous->listener.get(), credentials, 0, members);
    CHECK(acceptor.receive(records, Deadline::after_seconds(200)).status().message() == "");
  });
  CHECK(wait_until_open(strangers, 17, 8) <= 17);
  const auto member = net::connect_for_packets(rendezvous->name);
  REQUIRE(member.ok());
  pollfd entry{member->get(), POLLIN, 0};
  CHECK(::poll(&entry, 1, 8000) == 1);
  const auto challenge = net::receive_packet(member->get(), "the leader");
  collectives::Application application{.rank = 1, .nonce = collectives::fresh_nonce()};
  if (challenge.ok() && *challenge) {
    collectives::Nonce theirs{};
    REQUIRE((*challenge)->bytes.size() == theirs.size());
    std::ranges::copy((*challenge)->bytes, theirs.begin());
    application.proof = credentials.prove("member", 1, 0, theirs, application.nonce);
  }
  CHECK(net::send_packet(member->get(), application.encode(), {0}, "the leader").ok());
  leader.join();
}

TEST_CASE("an interruption ends the wait for a rank of this host that has ended") {
  auto rendezvous = collectives::RendezvousSocket::open();
  REQUIRE(rendezvous.ok());
  const collectives::Credentials credentials{
      .job = "0123456789abcdef", .generation = 0, .secret = test_secret()};
  const std::vector<int32_t> members{1};
  const std::vector<collectives::PeerRecord> records(2);
  Interruption interruption;
  std::thread other([&] { interruption.interrupt(aborted("rank 1 is lost")); });
  collectives::LocalAcceptor acceptor(rendezvous->listener.get(), credentials, 0, members,
                                      &interruption);
  CHECK(acceptor.receive(records, Deadline::never()).status().code() == Code::kAborted);
  other.join();
}

TEST_CASE("a process of another user gets no challenge at the rendezvous of a host") {
  if (::geteuid() != 0) return;  // only root can start a process of another user
  World world({0, 0});
  std::vector<Status> outcomes(2);
  const auto run = [&](int32_t index) {
    auto mesh = Mesh::establish(world.options(index), world.store, Deadline::after_seconds(200));
    outcomes[static_cast<size_t>(index)] = mesh.status();
    if (!mesh.ok()) return;
    Rank rank(std::move(*mesh));
    outcomes[static_cast<size_t>(index)] = pass_barrier(rank);
  };
  std::thread leader(run, 0);
  socklen_t size = 0;
  const sockaddr_un address = net::abstract_address(record_of(world, 0).rendezvous_socket, size);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t other = ::fork();
  if (other == 0) {
    std::array<char, 64> heard{};
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), size) != 0) ::_exit(3);
    if (::write(ends[1], "", 1) != 1) ::_exit(4);
    const ssize_t got = ::recv(socket, heard.data(), heard.size(), 0);
    ::_exit(got == static_cast<ssize_t>(collectives::kOtherUser.size()) ? 0 : 5);
  }
  // The leader accepts in order, after the other rank has published its record.
  char byte;
  CHECK(::read(ends[0], &byte, 1) == 1);
  std::thread member(run, 1);
  leader.join();
  member.join();
  int status = 0;
  ::waitpid(other, &status, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  require_all_ok(outcomes);
}
