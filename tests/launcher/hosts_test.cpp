#include "launcher/hosts.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace hvd::launcher {
namespace {

std::vector<Host> hosts_of(std::string_view list) {
  auto hosts = parse_hosts(list);
  REQUIRE_MESSAGE(hosts.ok(), hosts.status().message());
  return *hosts;
}
std::vector<Host> file_of(std::string_view text) {
  auto hosts = parse_hostfile(text, "f");
  REQUIRE_MESSAGE(hosts.ok(), hosts.status().message());
  return *hosts;
}
std::string error_of(std::string_view list) { return parse_hosts(list).status().message(); }
std::string file_error_of(std::string_view text) {
  return parse_hostfile(text, "f").status().message();
}

}  // namespace

TEST_CASE("-H names hosts with slots, spaces around items are nothing") {
  CHECK(hosts_of("a:4,b:2") == std::vector<Host>{{"a", "", 4}, {"b", "", 2}});
  CHECK(hosts_of(" a:4 , b:2\n") == std::vector<Host>{{"a", "", 4}, {"b", "", 2}});
}

TEST_CASE("a bare name has one slot") {
  CHECK(hosts_of("a,b:2") == std::vector<Host>{{"a", "", 1}, {"b", "", 2}});
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
  CHECK(error_of("a:4,,b:4") == "an item of 'a:4,,b:4' is empty; write the list as a:4,b:4");
  CHECK(error_of("a:4,b:x") == "'b:x': 'x' is not a number of slots, which is 1 or more");
  CHECK(error_of("a:") == "'a:': '' is not a number of slots, which is 1 or more");
  CHECK(error_of("a:0") == "'a:0': '0' is not a number of slots, which is 1 or more");
  CHECK(error_of("a:-2") == "'a:-2': '-2' is not a number of slots, which is 1 or more");
  CHECK(error_of(":4") == "':4': the host's name is missing");
  CHECK(error_of("a b:4") == "'a b:4': 'a b' is not a host's name");
  CHECK(error_of("-oProxyCommand=x:1") ==
        "'-oProxyCommand=x:1': '-oProxyCommand=x' is not a host's name");
  CHECK(error_of("fd00::1") == "'fd00::1': an IPv6 address needs brackets, as in [fd00::1]:4");
  CHECK(error_of("[fd00::1") == "'[fd00::1': the ']' is missing");
  CHECK(error_of("[fd00::1]4") ==
        "'[fd00::1]4': '4' follows the ']' where ':slots' may");
  CHECK(error_of("@a") == "'@a': '' is not a user's name");
  CHECK(error_of("a:99999999999999999999") ==
        "'a:99999999999999999999': '99999999999999999999' is not a number of slots, which is 1 "
        "or more");
}

TEST_CASE("a hostfile has a host on each line, in all the usual forms") {
  CHECK(file_of("a slots=4 max_slots=8\n"
                "b:2\r\n"
                "\r\n"
                "# nothing\n"
                "  c   # one\n"
                "me@d slots = 3 vendor=x\n"
                "e max-slots=2 slots=2") ==
        std::vector<Host>{
            {"a", "", 4}, {"b", "", 2}, {"c", "", 1}, {"d", "me", 3}, {"e", "", 2}});
  CHECK(file_of("a\na\nb slots=2\na slots=2\n") == std::vector<Host>{{"a", "", 4}, {"b", "", 2}});
  CHECK(file_of("\xef\xbb\xbf" "a\n") == std::vector<Host>{{"a", "", 1}});
}

TEST_CASE("an error in a hostfile names file and line") {
  CHECK(file_error_of("a\nb slots=x\n") ==
        "hostfile f, line 2: 'x' is not a number of slots, which is 1 or more");
  CHECK(file_error_of("a 4\n") ==
        "hostfile f, line 1: '4' is not understood; write 'host slots=4'");
  CHECK(file_error_of("\n\na slots=4 max_slots=2\n") ==
        "hostfile f, line 3: host a has slots=4, more than its max_slots=2");
  CHECK(file_error_of("a:2 slots=3\n") ==
        "hostfile f, line 1: host a is given both 2 and 3 slots");
  CHECK(file_error_of("# only\n\n") == "hostfile f names no host");
  CHECK(file_error_of(std::string_view("a\0b\n", 4)) ==
        "hostfile f, line 1: 'a\\x00b' is not a host's name");
}

TEST_CASE("a hostfile that cannot be read is named with the reason") {
  CHECK(read_hostfile("/nonexistent/hosts").status().message() ==
        "cannot read hostfile /nonexistent/hosts: No such file or directory");
  CHECK(read_hostfile("/").status().message() == "cannot read hostfile /: Is a directory");
}

}  // namespace hvd::launcher
