#include "launcher/plan/hosts.h"

#include <doctest/doctest.h>

#include <random>

#include "base/text.h"

namespace hvd::launcher {
namespace {

std::vector<Host> hosts_of(std::string_view list) {
  auto hosts = parse_hosts(list);
  REQUIRE_MESSAGE(hosts.ok(), hosts.status().message());
  return *hosts;
}
std::string error_of(std::string_view list) { return parse_hosts(list).status().message(); }

}  // namespace

TEST_CASE("-H names hosts with slots, spaces around items are nothing") {
  CHECK(hosts_of("a:4,b:2") == std::vector<Host>{{"a", "", 4}, {"b", "", 2}});
  CHECK(hosts_of(" a:4 , b:2\n") == std::vector<Host>{{"a", "", 4}, {"b", "", 2}});
}

TEST_CASE("-H separates hosts by commas and white space, and empty items count for nothing") {
  const std::vector<Host> wanted = {{"a", "", 4}, {"b", "", 2}};
  CHECK(hosts_of("a:4,b:2,") == wanted);
  CHECK(hosts_of(",a:4,,b:2") == wanted);
  CHECK(hosts_of("a:4 b:2") == wanted);
  CHECK(hosts_of("a:4\nb:2\r\n") == wanted);
  CHECK(error_of(" , ,") == "the list of hosts is empty; write it as a:4,b:4");
}

TEST_CASE("a bare name has one slot") {
  CHECK(hosts_of("a,b:2") == std::vector<Host>{{"a", "", 1}, {"b", "", 2}});
}

TEST_CASE("a bare name may be given more slots") {
  CHECK(*parse_hosts("a,b:2,n[1-2]", 8) ==
        std::vector<Host>{{"a", "", 8}, {"b", "", 2}, {"n1", "", 8}, {"n2", "", 8}});
}

TEST_CASE("ranges mean many hosts") {
  CHECK(hosts_of("n[01-03,20]:8, me@r[0-1]c[8-9]-ib,x") == std::vector<Host>{{"n01", "", 8},
                                                                             {"n02", "", 8},
                                                                             {"n03", "", 8},
                                                                             {"n20", "", 8},
                                                                             {"r0c8-ib", "me", 1},
                                                                             {"r0c9-ib", "me", 1},
                                                                             {"r1c8-ib", "me", 1},
                                                                             {"r1c9-ib", "me", 1},
                                                                             {"x", "", 1}});
  CHECK(hosts_of("n[1-2]:2,n2") == std::vector<Host>{{"n1", "", 2}, {"n2", "", 3}});
  CHECK(error_of("n[1-:2") == "'n[1-:2': the ']' is missing");
  CHECK(error_of("n[a-b]:2") == "'n[a-b]:2': 'a-b' is neither a number nor a range such as 01-16");
  CHECK(error_of("-n[1-2]") == "'-n[1-2]': '-n1' is not a host's name");
}

TEST_CASE("hosts that were written are read as the same hosts") {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    HostList wanted;
    std::string text;
    for (unsigned count = 1 + random() % 12; count > 0; --count) {
      const unsigned number = random() % 6;
      const bool is_address = random() % 4 == 0;
      const Host host{is_address ? cat("fd00::", number) : cat("n_", number, ".x-y.org"), "",
                      static_cast<int>(1 + random() % 9)};
      REQUIRE(wanted.add(host).ok());
      text += cat(text.empty() ? "" : ",", is_address ? "[" : "", host.name, is_address ? "]" : "");
      if (host.slots > 1 || random() % 2 == 0) text += cat(":", host.slots);
    }
    CHECK_MESSAGE(hosts_of(text) == *wanted.take(), text);
  }
}

TEST_CASE("users, underscores, full names and IPv6 addresses are understood") {
  CHECK(hosts_of("me@gpu_01.cluster-a.example.org:8") ==
        std::vector<Host>{{"gpu_01.cluster-a.example.org", "me", 8}});
  CHECK(hosts_of("me@corp.org@a") == std::vector<Host>{{"a", "me@corp.org", 1}});
  CHECK(hosts_of("[fd00::1]:4,[fe80::1%eth0],u@[::1]:2") ==
        std::vector<Host>{{"fd00::1", "", 4}, {"fe80::1%eth0", "", 1}, {"::1", "u", 2}});
  CHECK(hosts_of("10.1.2.3:4") == std::vector<Host>{{"10.1.2.3", "", 4}});
}

TEST_CASE("a host given twice has the sum of its slots, at its first place") {
  CHECK(hosts_of("a:1,b:2,a:3") == std::vector<Host>{{"a", "", 4}, {"b", "", 2}});
  CHECK(error_of("x@a:1,y@a:1") == "'y@a:1': host a was given before with user x");
}

TEST_CASE("a malformed item of -H is named") {
  CHECK(error_of("") == "the list of hosts is empty; write it as a:4,b:4");
  CHECK(error_of("a:4,b:x") == "'b:x': 'x' is not a number of slots, which is 1 or more");
  CHECK(error_of("a:") == "'a:': '' is not a number of slots, which is 1 or more");
  CHECK(error_of("a:0") == "'a:0': '0' is not a number of slots, which is 1 or more");
  CHECK(error_of("a:-2") == "'a:-2': '-2' is not a number of slots, which is 1 or more");
  CHECK(error_of(":4") == "':4': the host's name is missing");
  CHECK(error_of("a :4") == "':4': the host's name is missing");
  CHECK(error_of("-oProxyCommand=x:1") ==
        "'-oProxyCommand=x:1': '-oProxyCommand=x' is not a host's name");
  CHECK(error_of("fd00::1") == "'fd00::1': an IPv6 address needs brackets, as in [fd00::1]:4");
  CHECK(error_of("[fd00::zz]:4") == "'[fd00::zz]:4': 'fd00::zz' is not an IPv6 address");
  CHECK(error_of("[fd00::1") == "'[fd00::1': the ']' is missing");
  CHECK(error_of("[fd00::1]4") == "'[fd00::1]4': '4' follows the ']' where ':slots' may");
  CHECK(error_of("@a") == "'@a': '' is not a user's name");
  CHECK(error_of("a:99999999999999999999") ==
        "'a:99999999999999999999': '99999999999999999999' is not a number of slots, which is 1 "
        "or more");
}

}  // namespace hvd::launcher
