#include <doctest/doctest.h>

#include "base/text.h"
#include "net/endpoint.h"
#include "net/interfaces.h"

using namespace hvd;
using namespace hvd::net;

namespace {

Bytes ipv4(int a, int b, int c, int d) {
  return {std::byte(a), std::byte(b), std::byte(c), std::byte(d)};
}

bool allows(std::string_view rules, std::string_view interface, const Bytes& address) {
  const auto choice = InterfaceChoice::parse(rules);
  REQUIRE_MESSAGE(choice.ok(), choice.status().message());
  return choice->allows(interface, address);
}

}  // namespace

TEST_CASE("Without rules every interface is allowed") {
  CHECK(allows("", "eth0", ipv4(10, 0, 0, 1)));
  CHECK(allows(" ", "docker0", ipv4(172, 17, 0, 1)));
}

TEST_CASE("Names, beginnings of names and networks allow; each suffices") {
  const std::string rules = "eth0, ib*,10.64.0.0/10,fd00::/8";
  CHECK(allows(rules, "eth0", ipv4(1, 2, 3, 4)));
  CHECK(allows(rules, "ib12", ipv4(1, 2, 3, 4)));
  CHECK(allows(rules, "x", ipv4(10, 127, 255, 255)));
  CHECK_FALSE(allows(rules, "x", ipv4(10, 128, 0, 0)));
  CHECK_FALSE(allows(rules, "eth01", ipv4(1, 2, 3, 4)));
  Bytes six(16);
  six[0] = std::byte{0xfd};
  CHECK(allows(rules, "x", six));
  six[0] = std::byte{0xfe};
  CHECK_FALSE(allows(rules, "x", six));
}

TEST_CASE("An excluded interface stays out, whatever allows it; all others stay in") {
  CHECK_FALSE(allows("^docker0", "docker0", ipv4(172, 17, 0, 1)));
  CHECK(allows("^docker0", "eth0", ipv4(10, 0, 0, 1)));
  CHECK_FALSE(allows("10.0.0.0/8,^10.9.0.0/16", "eth0", ipv4(10, 9, 0, 1)));
  CHECK(allows("10.0.0.0/8,^10.9.0.0/16", "eth0", ipv4(10, 8, 0, 1)));
  CHECK_FALSE(allows("^10.0.0.1", "eth0", ipv4(10, 0, 0, 1)));
  CHECK(allows("0.0.0.0/0", "eth0", ipv4(10, 0, 0, 1)));
}

TEST_CASE("A text that is no rule is refused, and the error names the flag and the text") {
  for (const char* text : {"eth0,", "^", "10.0.0.0/33", "10.0.0.0/x", "10.0.0/8", "fd00::/129",
                           "an interface", "a*b", "a-name-that-is-too-long"}) {
    const auto choice = InterfaceChoice::parse(text);
    REQUIRE_FALSE(choice.ok());
    CHECK(choice.error().message().starts_with("--network-interfaces: '"));
  }
}

TEST_CASE("A range of ports is two numbers in order, one, or none") {
  CHECK(*parse_port_range("") == PortRange{});
  CHECK(parse_port_range("")->is_any());
  CHECK(*parse_port_range("29400-29409") == PortRange{29400, 29409});
  CHECK(parse_port_range("29400-29409")->size() == 10);
  CHECK(*parse_port_range("7") == PortRange{7, 7});
  for (const char* text : {"-", "0-1", "5-4", "1-65536", "a-b", "1-2-3", "1-"}) {
    CHECK_FALSE(parse_port_range(text).ok());
  }
}
