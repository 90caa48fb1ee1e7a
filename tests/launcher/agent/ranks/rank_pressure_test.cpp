#include "launcher/agent/ranks/rank_pressure.h"

#include <doctest/doctest.h>

#include "base/proc_file.h"

namespace hvd::launcher {

TEST_CASE("a host has processors, and a process without a quota is not stopped by one") {
  CHECK(host_pressure().processors > 0);
  CHECK(throttled_microseconds(1 << 30) == 0);
}

TEST_CASE("the killer's count is found in the files of both kinds of cgroups") {
  CHECK(line_count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill") == 3);
  CHECK(line_count("low 0\nhigh 0\nmax 12\noom 4\noom_kill 2\noom_group_kill 0\n", "oom_kill") ==
        2);
  CHECK_FALSE(line_count("", "oom_kill"));
  CHECK_FALSE(line_count("oom_kill x\noom_killer 3\n", "oom_kill"));
}

}  // namespace hvd::launcher
