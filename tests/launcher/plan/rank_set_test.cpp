#include "launcher/plan/rank_set.h"

#include <doctest/doctest.h>

namespace hvd::launcher {
namespace {

std::string error_of(std::string_view text) { return parse_ranks(text, 6).status().message(); }

}  // namespace

TEST_CASE("ranks and ranges of ranks") {
  CHECK(*parse_ranks("0,3-5", 6) == std::vector<bool>{true, false, false, true, true, true});
  CHECK(*parse_ranks(" 1 , 1", 2) == std::vector<bool>{false, true});
}

TEST_CASE("a name of many ranks is short") {
  CHECK(name_of_ranks({1}) == "rank 1");
  CHECK(name_of_ranks({3, 2}) == "ranks 2-3");
  CHECK(name_of_ranks({0, 2, 4, 5, 6}) == "ranks 0, 2, 4-6");
  CHECK(name_of_ranks({0, 2, 4, 8, 9, 11}) == "ranks 0, 2, 4 and 3 more");
}

TEST_CASE("an error names the number that is no rank of the job") {
  CHECK(error_of("x") == "'x' is neither a rank nor a range such as 3-5");
  CHECK(error_of("") == "'' is neither a rank nor a range such as 3-5");
  CHECK(error_of("-1") == "'-1' is neither a rank nor a range such as 3-5");
  CHECK(error_of("4-2") == "'4-2' is neither a rank nor a range such as 3-5");
  CHECK(error_of("0-9223372036854775807") ==
        "there is no rank 9223372036854775807; the last one is 5");
}

}  // namespace hvd::launcher
