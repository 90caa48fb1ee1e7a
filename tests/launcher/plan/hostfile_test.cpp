#include <doctest/doctest.h>

#include "base/text.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/text_file.h"

namespace hvd::launcher {
namespace {

std::vector<Host> file_of(std::string_view text) {
  auto hosts = parse_hostfile(text, "f");
  REQUIRE_MESSAGE(hosts.ok(), hosts.status().message());
  return hosts->hosts;
}
std::vector<std::string> warnings_of(std::string_view text) {
  return parse_hostfile(text, "f")->warnings;
}
std::string file_error_of(std::string_view text) {
  return parse_hostfile(text, "f").status().message();
}

}  // namespace

TEST_CASE("a hostfile has a host on each line, in all the usual forms") {
  CHECK(file_of("a slots=4 max_slots=8\n"
                "b:2\r\n"
                "\r\n"
                "# nothing\n"
                "  c   # one\n"
                "me@d slots = 3 vendor=x\n"
                "e max-slots=2 slots=2") ==
        std::vector<Host>{{"a", "", 4}, {"b", "", 2}, {"c", "", 1}, {"d", "me", 3}, {"e", "", 2}});
  CHECK(file_of("a\na\nb slots=2\na slots=2\n") == std::vector<Host>{{"a", "", 4}, {"b", "", 2}});
  CHECK(file_of("\xef\xbb\xbf"
                "a\n") == std::vector<Host>{{"a", "", 1}});
}

TEST_CASE("an error in a hostfile names file and line") {
  CHECK(file_error_of("a\nb slots=x\n") ==
        "hostfile f, line 2: 'x' is not a number of slots, which is 1 or more");
  CHECK(file_error_of("a 4\n") ==
        "hostfile f, line 1: '4' is not understood; write 'host slots=4'");
  CHECK(file_error_of("\n\na slots=4 max_slots=2\n") ==
        "hostfile f, line 3: host a has slots=4, more than its max_slots=2");
  CHECK(file_error_of("a:2 slots=3\n") == "hostfile f, line 1: host a is given both 2 and 3 slots");
  CHECK(file_error_of("a sluts=3\n") ==
        "hostfile f, line 1: unknown word 'sluts'; did you mean slots?");
  CHECK(file_error_of("# only\n\n") == "hostfile f names no host");
  CHECK(file_error_of(std::string_view("a\0b\n", 4)) ==
        "hostfile f, line 1: 'a\\x00b' is not a host's name");
}

TEST_CASE("ranges, MPICH's users and a number of slots for bare names") {
  CHECK(file_of("n[1-2]:4 user=me ifname=eth1\nx@c user=y\n") ==
        std::vector<Host>{{"n1", "me", 4}, {"n2", "me", 4}, {"c", "y", 1}});
  CHECK(file_error_of("a user=-x\n") == "hostfile f, line 1: '-x' is not a user's name");
  CHECK(parse_hostfile("a\nb slots=2\n", "f", 8)->hosts ==
        std::vector<Host>{{"a", "", 8}, {"b", "", 2}});
}

TEST_CASE("every word of Open MPI for slots, limits, users and ports counts") {
  CHECK(file_of("aa slots=4 max_slots=4\nbb max_slots=4\ncc slots=4\n") ==
        std::vector<Host>{{"aa", "", 4}, {"bb", "", 4}, {"cc", "", 4}});
  for (const char* word :
       {"slots", "cpu", "count", "slots_max", "slots-max", "max-slots", "cpu_max", "cpu-max",
        "max_cpu", "max-cpu", "count_max", "count-max", "max_count", "max-count"}) {
    CHECK_MESSAGE((file_of(cat("a ", word, "=3\n")) == std::vector<Host>{{"a", "", 3}}), word);
  }
  for (const char* word : {"user", "username", "user_name", "user-name"}) {
    CHECK_MESSAGE(
        (file_of(cat("a slots=2 ", word, "=bob\n")) == std::vector<Host>{{"a", "bob", 2}}), word);
  }
  CHECK(file_of("a port=2222\n") == std::vector<Host>{{"a", "", 1, 2222}});
  CHECK(file_error_of("a port=0\n") ==
        "hostfile f, line 1: '0' is not a port, which is 1 to 65535");
  CHECK(file_error_of("a port=22\na\n") ==
        "hostfile f, line 2: host a was given before with port 22");
  CHECK(file_error_of("a cpu=2 slots=3\n") ==
        "hostfile f, line 1: host a is given both 2 and 3 slots");
}

TEST_CASE("comments end lines, or reach over lines") {
  CHECK(file_of("a slots=2 // all of it\n/* b slots=2\n c */ d /* two */ slots=3\n") ==
        std::vector<Host>{{"a", "", 2}, {"d", "", 3}});
  CHECK(file_error_of("a\n/* b\nc\n") ==
        "hostfile f, line 2: the comment that begins with /* has no */");
}

TEST_CASE("an unknown word that may be a number of slots is refused, others are named once") {
  CHECK(file_error_of("a\nb np=4\n") ==
        "hostfile f, line 2: unknown word 'np' on a line without a number of slots; write 'host "
        "slots=4'");
  CHECK(file_error_of("a SLOTS=2\n").starts_with("hostfile f, line 1: unknown word 'SLOTS'"));
  CHECK(
      warnings_of("a slots=4 gpus=4\nb slots=4 gpus=4\nc:2 rack=1\n") ==
      std::vector<std::string>{"hostfile f, line 1: the word 'gpus' is unknown and has no effect",
                               "hostfile f, line 3: the word 'rack' is unknown and has no effect"});
  CHECK(warnings_of("a binding=user:0 ifname=eth1 ifhn=b\n").empty());
}

TEST_CASE("a file that cannot be read is named with the reason") {
  CHECK(read_text_file("/nonexistent/hosts", "hostfile").status().message() ==
        "cannot read hostfile /nonexistent/hosts: No such file or directory");
  CHECK(read_text_file("/", "hostfile").status().message() ==
        "cannot read hostfile /: Is a directory");
}

}  // namespace hvd::launcher
