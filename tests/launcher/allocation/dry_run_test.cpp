#include "launcher/allocation/dry_run.h"

#include <doctest/doctest.h>

namespace hvd::launcher {

TEST_CASE("the plan's table has a line for each host") {
  const auto plan = plan_slots({{"a", "", 4}, {"worker-with-a-name", "", 1}}, std::nullopt);
  REQUIRE(plan.ok());
  CHECK(plan_as_table(*plan, LaunchSettings()) ==
        "host                ranks  local ranks  agent by\n"
        "a                   0-3    0-3          ssh, unless this machine\n"
        "worker-with-a-name  4      0            ssh, unless this machine\n"
        "\n"
        "5 ranks on 2 hosts; --json also prints the variables of each rank\n");
}

TEST_CASE("the plan's table names a command that reaches the hosts") {
  Settings settings;
  REQUIRE(settings.set("launch_agent", "docker exec -i {host}").ok());
  const auto plan = plan_slots({{"a", "", 1}}, std::nullopt);
  REQUIRE(plan.ok());
  CHECK(plan_as_table(*plan, LaunchSettings(settings)) ==
        "host  ranks  local ranks  agent by\n"
        "a     0      0            --launch-agent\n"
        "\n"
        "1 rank on 1 host; --json also prints the variables of each rank\n");
}

}  // namespace hvd::launcher
