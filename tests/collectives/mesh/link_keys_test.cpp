// The keys with which two ranks encrypt a link: both ends have them, and no other link ever has.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <functional>
#include <set>

#include "collectives/mesh/handshake.h"

using namespace hvd;
using namespace hvd::collectives;

namespace {

Credentials credentials_of(std::string_view secret) {
  return {.job = "job",
          .generation = 1,
          .secret = Secret::from_bytes(as_bytes(secret)).value(),
          .encrypts = true};
}

struct Ends {
  std::optional<LinkKeys> dialler, acceptor;
};

// The keys that rank 0 and rank 1 have after a handshake.
Ends meet(const Credentials& credentials) {
  int sockets[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) == 0);
  net::EventLoop loop = std::move(net::EventLoop::open()).value();
  const auto dialler =
      Handshake::dial(loop, credentials, GuardedFd(UniqueFd(sockets[0])), 0, 1, 0, "");
  const auto acceptor = Handshake::accept(loop, credentials, GuardedFd(UniqueFd(sockets[1])), 1, 2);
  for (int turn = 0; turn < 20 && dialler->state() != Handshake::State::kOpen; ++turn) {
    loop.turn(Deadline::after_seconds(200));
    if (dialler->state() == Handshake::State::kProven) dialler->choose();
    if (acceptor->state() == Handshake::State::kProven) acceptor->confirm();
  }
  REQUIRE(dialler->state() == Handshake::State::kOpen);
  REQUIRE(acceptor->state() == Handshake::State::kOpen);
  return {dialler->keys(), acceptor->keys()};
}

}  // namespace

TEST_CASE("both ends have the same two keys, and a link that is opened again has others") {
  const Credentials credentials = credentials_of("secret");
  std::set<Digest> keys;
  for (int time = 0; time < 3; ++time) {
    const Ends ends = meet(credentials);
    REQUIRE(ends.dialler);
    REQUIRE(ends.acceptor);
    CHECK(ends.dialler->sending == ends.acceptor->receiving);
    CHECK(ends.dialler->receiving == ends.acceptor->sending);
    keys.insert({ends.dialler->sending, ends.dialler->receiving});
  }
  CHECK(keys.size() == 6);
}

TEST_CASE("ranks that do not encrypt derive no keys") {
  Credentials credentials = credentials_of("secret");
  credentials.encrypts = false;
  const Ends ends = meet(credentials);
  CHECK(!ends.dialler);
  CHECK(!ends.acceptor);
}

TEST_CASE(
    "secret, job, generation, direction, ranks, both nonces and stream each make another key") {
  const Credentials credentials = credentials_of("secret");
  Credentials other_job = credentials, other_generation = credentials;
  other_job.job = "other";
  other_generation.generation = 2;
  const Nonce one{}, other{std::byte{1}};
  const Bytes hello(1), other_hello(2);
  const std::set<Digest> keys{credentials.derive_key("dialler", 0, 1, one, one, hello),
                              credentials_of("other").derive_key("dialler", 0, 1, one, one, hello),
                              other_job.derive_key("dialler", 0, 1, one, one, hello),
                              other_generation.derive_key("dialler", 0, 1, one, one, hello),
                              credentials.derive_key("acceptor", 0, 1, one, one, hello),
                              credentials.derive_key("dialler", 2, 1, one, one, hello),
                              credentials.derive_key("dialler", 0, 2, one, one, hello),
                              credentials.derive_key("dialler", 0, 1, other, one, hello),
                              credentials.derive_key("dialler", 0, 1, one, other, hello),
                              credentials.derive_key("dialler", 0, 1, one, one, other_hello),
                              // The proof of the same values is not a key.
                              credentials.prove("dialler", 0, 1, one, one, hello)};
  CHECK(keys.size() == 11);
}
