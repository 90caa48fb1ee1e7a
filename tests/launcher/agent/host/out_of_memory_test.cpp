#include "launcher/agent/host/out_of_memory.h"

#include <doctest/doctest.h>

using namespace hvd::launcher;

TEST_CASE("the killer's count is found in the files of both kinds of cgroups") {
  CHECK(parse_oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n") == 3);
  CHECK(parse_oom_kills("low 0\nhigh 0\nmax 12\noom 4\noom_kill 2\noom_group_kill 0\n") == 2);
  CHECK_FALSE(parse_oom_kills(""));
  CHECK_FALSE(parse_oom_kills("oom_kill x\noom_killer 3\n"));
}
