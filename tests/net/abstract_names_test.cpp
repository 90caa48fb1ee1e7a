
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/secrets/secret.h"
#include "base/text.h"
#include "net/packet_socket.h"

namespace hvd::net {
namespace {

TEST_CASE("listeners are found by the beginning of their names, and their connections are not") {
  const std::string prefix = cat("horovod-test/", random_hex(8), "/");
  CHECK(listening_names(prefix).empty());
  const auto listener = listen_for_packets(prefix + "one");
  REQUIRE(listener.ok());
  const auto client = connect_for_packets(prefix + "one");
  REQUIRE(client.ok());
  CHECK(listening_names(prefix) == std::vector{prefix + "one"});
}

TEST_CASE("the peer of a socket is the process and user that listen there") {
  const std::string name = cat("horovod-test/", random_hex(8));
  const auto listener = listen_for_packets(name);
  REQUIRE(listener.ok());
  const auto found = connect_to_listener(name, SOCK_SEQPACKET);
  REQUIRE(found);
  CHECK(found->pid == ::getpid());
  CHECK(found->uid == ::geteuid());
  CHECK_FALSE(connect_to_listener(name + "x", SOCK_SEQPACKET));
  CHECK_FALSE(connect_to_listener(name, SOCK_STREAM));
}

TEST_CASE("a listener whose queue is full does not block a caller, which finds that it listens") {
  const std::string name = cat("horovod-test/", random_hex(8));
  const UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  socklen_t size = 0;
  const sockaddr_un address = abstract_address(name, size);
  REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
  REQUIRE(::listen(listener.get(), 0) == 0);
  CHECK(connect_to_listener(name, SOCK_SEQPACKET)->pid == ::getpid());
  const auto found = connect_to_listener(name, SOCK_SEQPACKET);
  REQUIRE(found);
  CHECK_FALSE(found->socket);
  CHECK(found->pid == 0);
}

}  // namespace
}  // namespace hvd::net
