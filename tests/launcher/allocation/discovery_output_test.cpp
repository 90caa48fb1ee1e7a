#include <doctest/doctest.h>

#include "base/text.h"
#include "launcher/allocation/script_discovery.h"

namespace hvd::launcher {
namespace {

using Hosts = std::vector<Host>;
using Warnings = std::vector<std::string>;

// Parses output that causes no warning.
Hosts hosts_in(std::string_view text, int slots_alone = 1) {
  const DiscoveryOutput output = parse_discovery_output(text, slots_alone);
  CHECK_MESSAGE(output.warnings.empty(), join(output.warnings, "\n"));
  return output.hosts;
}

// Returns the error for output without a usable line.
std::string warning_of(std::string_view text) {
  const DiscoveryOutput output = parse_discovery_output(text);
  CHECK(output.hosts.empty());
  REQUIRE(output.warnings.size() == 1);
  return output.warnings.front();
}

}  // namespace

TEST_CASE("a discovered host has its slots, or the default") {
  CHECK(hosts_in("a:2\n") == Hosts{{"a", "", 2}});
  CHECK(hosts_in("a\n") == Hosts{{"a", "", 1}});
  CHECK(hosts_in("a\nb:3\n", 4) == Hosts{{"a", "", 4}, {"b", "", 3}});
  CHECK(hosts_in("pod.job.namespace.svc", 8) == Hosts{{"pod.job.namespace.svc", "", 8}});
}

TEST_CASE("discovery without a host is a valid answer") {
  CHECK(hosts_in("").empty());
  CHECK(hosts_in("\n  \n\t\r\n").empty());
  CHECK(hosts_in("\xef\xbb\xbf").empty());
}

TEST_CASE("discovery output without one line that names a host is an error") {
  for (const char* text :
       {"Error from server (ServiceUnavailable): the server is currently unable\n", "null\n",
        "None\nnull:2\n", "<none>\n", "<html><body>502 Bad Gateway</body></html>\n",
        "{\"error\": \"forbidden\"}\n", "a:x\n"}) {
    CAPTURE(text);
    const DiscoveryOutput output = parse_discovery_output(text);
    CHECK(output.hosts.empty());
    CHECK(output.is_error);
    CHECK_FALSE(output.warnings.empty());
  }
  for (const char* text : {"", "# no hosts today\n", "null\na:1\n", "a:0\n", "a slots=0\n"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_discovery_output(text).is_error);
  }
}

TEST_CASE("discovered hosts keep the printed order") {
  CHECK(hosts_in("z:1\n\nb:2\na:3") == Hosts{{"z", "", 1}, {"b", "", 2}, {"a", "", 3}});
}

TEST_CASE("two names of one machine are two discovered hosts") {
  CHECK(hosts_in("localhost:2,127.0.0.1:2\n") == Hosts{{"localhost", "", 2}, {"127.0.0.1", "", 2}});
}

TEST_CASE("a host that discovery names twice is there once, with the last number") {
  CHECK(hosts_in("a:2\nb:1\na:2\n") == Hosts{{"a", "", 2}, {"b", "", 1}});
  const DiscoveryOutput output = parse_discovery_output("a:2\nb:1\na:3\n");
  CHECK(output.hosts == Hosts{{"a", "", 3}, {"b", "", 1}});
  CHECK(output.warnings ==
        Warnings{"line 3 gives host a 3 slots, an earlier line 2; the last line counts"});
  const DiscoveryOutput users = parse_discovery_output("x@a\ny@a\n");
  CHECK(users.hosts == Hosts{{"a", "y", 1}});
  CHECK(users.warnings ==
        Warnings{"line 2 gives host a another user than an earlier line; the last line counts"});
}

TEST_CASE("white space around a discovered host does not count") {
  CHECK(hosts_in(" b:3 \nc:1\r\n\t d \t") == Hosts{{"b", "", 3}, {"c", "", 1}, {"d", "", 1}});
}

TEST_CASE("discovery output may have comments and the forms of hostfiles") {
  CHECK(hosts_in("# text\na slots=2\nb:2 # x\nc#y\n") ==
        Hosts{{"a", "", 2}, {"b", "", 2}, {"c", "", 1}});
  CHECK(hosts_in("a:2,b:2\nc:1, d slots=3,\n") ==
        Hosts{{"a", "", 2}, {"b", "", 2}, {"c", "", 1}, {"d", "", 3}});
  CHECK(hosts_in("[fe80::1]:2\n[fd00::1]\nme@c:2\n") ==
        Hosts{{"fe80::1", "", 2}, {"fd00::1", "", 1}, {"c", "me", 2}});
  CHECK(hosts_in("n[08-10]:2\n") == Hosts{{"n08", "", 2}, {"n09", "", 2}, {"n10", "", 2}});
}

TEST_CASE("a line of discovery that is not clear is skipped by name, and others count") {
  CHECK(warning_of("a:2:3").starts_with("'a:2:3' in line 1 is skipped: "));
  CHECK(warning_of("\n\na:x\n") ==
        "'a:x' in line 3 is skipped: 'x' is not a number of slots, which is 1 or more");
  CHECK(warning_of("a:").starts_with("'a:' in line 1 is skipped: "));
  CHECK(warning_of(",,") == "',,' in line 1 is skipped: it names no host");
  CHECK(warning_of("a 2").starts_with("'a 2' in line 1 is skipped: '2' is not understood"));
  CHECK(warning_of("-oProxyCommand=x").starts_with("'-oProxyCommand=x' in line 1 is skipped: "));
  CHECK(warning_of(std::string_view("a\0b", 3)).starts_with("'a\\x00b' in line 1 is skipped: "));
  const DiscoveryOutput output = parse_discovery_output("a:2\nb:x,c:1\nd\n");
  CHECK(output.hosts == Hosts{{"a", "", 2}, {"c", "", 1}, {"d", "", 1}});
  CHECK(output.warnings ==
        Warnings{"'b:x' in line 2 is skipped: 'x' is not a number of slots, which is 1 or more"});
}

TEST_CASE("discovered hosts without slots or name are ignored with a warning") {
  CHECK(warning_of("a:0").starts_with("'a:0' in line 1 is skipped: '0' is not a number of slots"));
  CHECK(warning_of("a:-1").starts_with("'a:-1' in line 1 is skipped: '-1' is not a number"));
  CHECK(warning_of("a slots=0").starts_with("'a slots=0' in line 1 is skipped: "));
  CHECK(warning_of(":2") == "':2' in line 1 is skipped: the host's name is missing");
}

TEST_CASE("a large discovery answer has all its hosts, and bounded warnings") {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += cat("host", i, ":8\n");
  const Hosts hosts = hosts_in(text);
  REQUIRE(hosts.size() == 1000);
  CHECK(hosts.back() == Host{"host999", "", 8});

  text.clear();
  for (int i = 0; i < 1000; ++i) text += "a:x\n";
  const DiscoveryOutput bad = parse_discovery_output(text);
  REQUIRE(bad.warnings.size() == 21);
  CHECK(bad.warnings.back() == "and 980 more such warnings");
}

TEST_CASE("discovery is bounded in hosts and in slots") {
  const DiscoveryOutput wide = parse_discovery_output("n[1-1000]:65536\nlast:1\n");
  int64_t total = 0;
  for (const Host& host : wide.hosts) total += host.slots;
  CHECK(total <= kMaxSlots);
  CHECK(wide.warnings.size() == 2);
  std::string repeated;
  for (int i = 0; i < 100000; ++i) repeated += "n[1-100000]\n";
  const DiscoveryOutput output = parse_discovery_output(repeated);
  CHECK(output.hosts.size() == 100000);
  REQUIRE(output.warnings.size() == 1);
  CHECK(output.warnings.front().ends_with("times; the rest is ignored"));
}

}  // namespace hvd::launcher
