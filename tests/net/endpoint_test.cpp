#include "net/endpoint.h"

#include <doctest/doctest.h>

#include <string>

#include "net/resolve.h"
#include "net/socket_address.h"

namespace hvd::net {

TEST_CASE("a parsed endpoint is written the same") {
  for (const std::string text :
       {"unix:/run/a.sock", "unix:@horovod-1", "tcp:host:1", "tcp:10.0.0.1:65535",
        "tcp:[::1]:29400", "tcp:[fe80::1%eth0]:1", "tcp::0"}) {
    const auto endpoint = parse_endpoint(text);
    REQUIRE_MESSAGE(endpoint.ok(), text);
    CHECK(to_string(*endpoint) == text);
  }
}

TEST_CASE("a star and nothing both mean all interfaces") {
  CHECK(*parse_endpoint("tcp:*:5") == *parse_endpoint("tcp::5"));
}

TEST_CASE("a malformed address gets a sentence that shows it and the forms") {
  for (const std::string text : {"",
                                 "unix:",
                                 "unix:@",
                                 "unix:relative",
                                 "tcp:",
                                 "tcp:host",
                                 "tcp:host:",
                                 "tcp:host:x",
                                 "tcp:host:65536",
                                 "tcp:host:-1",
                                 "tcp:host:-0",
                                 "tcp:::1:5",
                                 "tcp:[::1]",
                                 "tcp:[::1]5",
                                 "tcp:[::1:5",
                                 "tcp:[a]:5",
                                 "tcp:a b:5",
                                 "tcp:user@host:5",
                                 "http://host:5",
                                 "host:5"}) {
    const auto endpoint = parse_endpoint(text);
    REQUIRE_MESSAGE(!endpoint.ok(), text);
    CHECK(endpoint.status().code() == Code::kInvalidArgument);
    CHECK(endpoint.status().message().find("'" + text + "'") != std::string::npos);
  }
  CHECK_FALSE(parse_endpoint("unix:/" + std::string(107, 'x')).ok());
  CHECK(parse_endpoint("unix:/" + std::string(106, 'x')).ok());
  CHECK_FALSE(parse_endpoint(std::string("unix:/a\0b", 9)).ok());
}

TEST_CASE("an address survives the way through a sockaddr") {
  for (const std::string text :
       {"unix:/run/a.sock", "unix:@horovod-1", "tcp:10.0.0.1:65535", "tcp:[::1]:29400"}) {
    const auto address = numeric_address(*parse_endpoint(text));
    REQUIRE(address.has_value());
    CHECK(to_string(to_endpoint(*address)) == text);
  }
  CHECK_FALSE(numeric_address(*parse_endpoint("tcp:localhost:1")).has_value());
}

TEST_CASE("a name resolves to every address that it has, and one that does not is named") {
  const auto found = resolve(*parse_endpoint("tcp:localhost:7"));
  REQUIRE(found.ok());
  CHECK(to_endpoint(found->front()).port == 7);
  const auto missing = resolve(*parse_endpoint("tcp:no-such-host.invalid:7"));
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.status().message().find("no-such-host.invalid") != std::string::npos);
  CHECK_FALSE(resolve(*parse_endpoint("tcp::7")).ok());
}

TEST_CASE("an address is 4 or 16 bytes, and the text of those") {
  CHECK(address_bytes("10.0.0.1").size() == 4);
  CHECK(address_bytes("fd00::1").size() == 16);
  for (const char* text : {"10.0.0.1", "fd00::1", "::"}) {
    CHECK(address_text(address_bytes(text)) == text);
  }
  for (const char* text : {"", "a", "10.0.0", "[::1]", "fe80::1%lo"}) {
    CHECK(address_bytes(text).empty());
  }
  CHECK(address_text({}).empty());
}

TEST_CASE("the host of an address is IPv4 where IPv6 has mapped it") {
  const auto host_of = [](const char* text) {
    const auto address = numeric_address(*parse_endpoint(text));
    return address ? host_text(*address) : "no address";
  };
  CHECK(host_of("tcp:[::ffff:10.0.0.1]:1") == "10.0.0.1");
  CHECK(host_of("tcp:[::ffff:0:1]:1") == "0.0.0.1");
  CHECK(host_of("tcp:[fd00::1]:1") == "fd00::1");
  CHECK(host_of("tcp:10.0.0.1:1") == "10.0.0.1");
  CHECK(host_of("unix:@name").empty());
}

}  // namespace hvd::net
