#include "net/peer_user.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "net/blocking_stream.h"
#include "net/resolve.h"
#include "net/socket_address.h"

namespace hvd::net {
namespace {

constexpr uid_t kOther = 65534;

// A connection of a process of this user to a listener at `listens`.
class Connection {
 public:
  Connection(const std::string& listens, const std::string& host, uid_t uid) {
    auto listener = listen_on(*numeric_address(*parse_endpoint(listens)));
    REQUIRE(listener.ok());
    Endpoint where = to_endpoint(*local_address(listener->get()));
    if (!host.empty()) where.host = host;
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control_) == 0);
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      ::close(control_[0]);
      if (uid != ::geteuid() && ::setuid(uid) != 0) ::_exit(1);
      auto stream = BlockingStream::connect(std::vector{*numeric_address(where)},
                                            Deadline::after_seconds(10));
      char byte = 0;
      while (::read(control_[1], &byte, 1) > 0) {
        ::shutdown(stream->fd(), SHUT_RDWR);
        stream = unavailable("closed");
        (void)!::write(control_[1], &byte, 1);
      }
      ::_exit(0);
    }
    ::close(control_[1]);
    pollfd entry{listener->get(), POLLIN, 0};
    REQUIRE(::poll(&entry, 1, 10'000) == 1);
    socket_.reset(::accept(listener->get(), nullptr, nullptr));
  }
  ~Connection() {
    ::close(control_[0]);
    ::waitpid(child_, nullptr, 0);
  }
  int socket() const { return socket_.get(); }
  // Returns when the child has closed its end.
  void close_far_end() {
    char byte = 0;
    REQUIRE(::write(control_[0], &byte, 1) == 1);
    REQUIRE(::read(control_[0], &byte, 1) == 1);
  }

 private:
  int control_[2];
  pid_t child_ = -1;
  UniqueFd socket_;
};

bool has_ipv6() { return listen_on(*numeric_address(*parse_endpoint("tcp:[::1]:0"))).ok(); }

struct Case {
  std::string listens;
  std::string host;  // address to connect to; empty: the listener's
};

}  // namespace

TEST_CASE("the user at the other end of a connection within this host is known, until it closes") {
  for (const bool asks_kernel : {true, false}) {
    for (const Case& tried :
         {Case{"tcp:127.0.0.1:0", ""}, Case{"tcp:[::1]:0", ""}, Case{"tcp:[::]:0", "127.0.0.1"}}) {
      if (tried.listens.starts_with("tcp:[") && !has_ipv6()) continue;
      for (const uid_t uid : {::geteuid(), kOther}) {
        if (uid != ::geteuid() && ::geteuid() != 0) continue;
        CAPTURE(asks_kernel);
        CAPTURE(tried.listens);
        CAPTURE(tried.host);
        Connection connection(tried.listens, tried.host, uid);
        const PeerUser peer = peer_user(connection.socket(), asks_kernel);
        CHECK(peer.is_here);
        CHECK(peer.uid == uid);
        CHECK(peer.is_own_or_elsewhere() == (uid == ::geteuid()));
        CHECK(peer.refusal().starts_with(cat("this connection comes from user ", uid, " of ")));
        connection.close_far_end();
        const PeerUser gone = peer_user(connection.socket(), asks_kernel);
        CHECK(gone.is_here);
        CHECK_FALSE(gone.uid);
        CHECK_FALSE(gone.is_own_or_elsewhere());
      }
    }
  }
}

TEST_CASE("a Unix socket knows its peer, and a descriptor that is no connection is not trusted") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const UniqueFd near(ends[0]), far(ends[1]);
  CHECK(peer_user(near.get()).uid == ::geteuid());
  CHECK(peer_user(near.get()).is_own_or_elsewhere());
  const UniqueFd unconnected(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK_FALSE(peer_user(unconnected.get()).is_own_or_elsewhere());
  CHECK_FALSE(peer_user(-1).is_own_or_elsewhere());
}

TEST_CASE("a peer on another host is elsewhere") { CHECK(PeerUser{}.is_own_or_elsewhere()); }

}  // namespace hvd::net
