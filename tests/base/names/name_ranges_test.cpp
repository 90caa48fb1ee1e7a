#include "base/names/name_ranges.h"

#include <doctest/doctest.h>

#include <random>

#include "base/text.h"

namespace hvd {
namespace {

using Names = std::vector<std::string>;

Names names_of(std::string_view pattern) {
  const auto names = expand_names(pattern);
  REQUIRE_MESSAGE(names.ok(), names.status().message());
  return *names;
}
std::string error_of(std::string_view pattern) { return expand_names(pattern).status().message(); }

}  // namespace

TEST_CASE("a text without brackets is itself") { CHECK(names_of("n1.a-b") == Names{"n1.a-b"}); }

TEST_CASE("a range keeps the width of its beginning") {
  CHECK(names_of("n[8-11]") == Names{"n8", "n9", "n10", "n11"});
  CHECK(names_of("n[08-11]") == Names{"n08", "n09", "n10", "n11"});
  CHECK(names_of("n[099-101,7]") == Names{"n099", "n100", "n101", "n7"});
  CHECK(names_of("n[1 , 3-4]x") == Names{"n1x", "n3x", "n4x"});
}

TEST_CASE("several brackets multiply, the last is the fastest") {
  CHECK(names_of("r[0-1]n[2-3]") == Names{"r0n2", "r0n3", "r1n2", "r1n3"});
  CHECK(names_of("r[0-1]n[2-3]-[5,6]").size() == 8);
}

TEST_CASE("brackets hold brackets") {
  CHECK(names_of("n[1,2[3-4],5]") == Names{"n1", "n23", "n24", "n5"});
  CHECK(names_of("n[[1-2],[4-5]]") == Names{"n1", "n2", "n4", "n5"});
}

TEST_CASE("a word that is no range is an error") {
  CHECK(error_of("n[1-2") == "the ']' is missing");
  CHECK(error_of("n1]") == "a ']' has no '[' before it");
  CHECK(error_of("n[]") == "'' is neither a number nor a range such as 01-16");
  CHECK(error_of("n[3-1]") == "the range 3-1 ends before it begins");
  CHECK(error_of("n[1-2-3]") == "'1-2-3' is neither a number nor a range such as 01-16");
  CHECK(error_of("n[1-999999999]") == "the range 1-999999999 has more than 131072 hosts");
  CHECK(error_of("n[0-999][0-999]") == "its ranges name more than 131072 hosts");
  CHECK(error_of("n[9999999999999999999]") ==
        "'9999999999999999999' is too long for a host's number");
  CHECK(error_of(std::string(20, '[')) == "the ']' is missing");
  CHECK(error_of(std::string(20, '[') + "1" + std::string(20, ']')) ==
        "brackets are nested too deeply");
}

TEST_CASE("any range has all its numbers, in order and padded") {
  std::mt19937 random(9);
  for (int round = 0; round < 500; ++round) {
    const unsigned low = random() % 1200, high = low + random() % 300, width = 1 + random() % 5;
    std::string first = cat(low);
    if (first.size() < width) first.insert(0, width - first.size(), '0');
    const Names names = names_of(cat("h[", first, "-", high, "]"));
    REQUIRE(names.size() == high - low + 1);
    for (unsigned i = 0; i < names.size(); ++i) {
      CHECK(*parse_int(std::string_view(names[i]).substr(1)) == low + i);
      CHECK(names[i].size() >= 1 + first.size());
    }
  }
}

TEST_CASE("commas within brackets separate nothing") {
  CHECK(split_outside_brackets("a,n[1,3],b") == std::vector<std::string_view>{"a", "n[1,3]", "b"});
  CHECK(split_outside_brackets("") == std::vector<std::string_view>{""});
  CHECK(split_outside_brackets("a],b") == std::vector<std::string_view>{"a]", "b"});
}

}  // namespace hvd
