#include <doctest/doctest.h>

#include "launcher/observe/views/job_states.h"

namespace hvd::launcher {
namespace {

TEST_CASE("the heads of an agent's answer get the ranks that processes have now") {
  HostTable hosts(*plan_slots({{"a", "", 5}}, {}));
  const int members[] = {0, 3};
  hosts.set_members(0, members);
  CHECK(with_present_ranks("rank 3\n  pid 7, sleeping: rank 3\nrank 4\n  pid 8, running: x\n",
                           hosts) ==
        "rank 1 (process 3)\n  pid 7, sleeping: rank 3\nprocess 4, not a rank\n  pid 8, running: "
        "x\n");
  CHECK(with_present_ranks("", hosts).empty());
  CHECK(with_present_ranks("rank x\n", hosts) == "rank x\n");
  CHECK(with_present_ranks("rank 4294967299\n", hosts) == "process 4294967299, not a rank\n");
}

}  // namespace
}  // namespace hvd::launcher
