#include "launcher/observe/views/rank_names.h"

#include <doctest/doctest.h>

namespace hvd::launcher {
namespace {

TEST_CASE("the heads of an agent's answer get the ranks that processes have now") {
  const auto rank_of = [](int process) { return process == 3 ? 1 : -1; };
  CHECK(with_present_ranks("rank 3\n  pid 7, sleeping: rank 3\nrank 4\n  pid 8, running: x\n",
                           rank_of) ==
        "rank 1 (process 3)\n  pid 7, sleeping: rank 3\nprocess 4, not a rank\n  pid 8, running: "
        "x\n");
  CHECK(with_present_ranks("", rank_of).empty());
  CHECK(with_present_ranks("rank x\n", rank_of) == "rank x\n");
}

}  // namespace
}  // namespace hvd::launcher
