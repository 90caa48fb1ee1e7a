#include <doctest/doctest.h>

#include "launcher/plan/slot_plan.h"

namespace hvd::launcher {
namespace {

std::vector<std::string> names_of(const auto& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("the last hosts are the spares, and at least one is none") {
  std::vector<Host> hosts = {{"a", "", 2}, {"b", "", 2}, {"c", "", 2}};
  CHECK(names_of(*take_spares(hosts, 1)) == Names{"c"});
  CHECK(names_of(hosts) == Names{"a", "b"});
  CHECK(take_spares(hosts, 0)->empty());
  CHECK(take_spares(hosts, 2).status().message() ==
        "--spares 2 leaves none of the 2 hosts to start on; name more with -H");
  CHECK(names_of(hosts) == Names{"a", "b"});
}

TEST_CASE("a failed host's ranks go to the first spare that has room for them") {
  SlotPlan plan = *plan_slots({{"a", "", 2}, {"b", "", 2}}, 3);
  std::vector<Host> spares = {{"small", "", 1}, {"large", "me", 2}};
  CHECK((can_replace(plan, 0, spares) && can_replace(plan, 1, spares)));
  Replacement done = replace_hosts(plan, {0}, spares);
  CHECK(done.unreplaced.empty());
  CHECK(done.sentences == Names{"host large, a spare, takes the place of host a"});
  CHECK(plan.hosts[0] == Host{"large", "me", 2});
  CHECK(plan.slots[0].host == 0);
  CHECK(names_of(spares) == Names{"small"});
  CHECK((!can_replace(plan, 0, spares) && can_replace(plan, 1, spares)));
  // Only rank 2 was on b.
  done = replace_hosts(plan, {1}, spares);
  CHECK(done.unreplaced.empty());
  CHECK(names_of(plan.hosts) == Names{"large", "small"});
  done = replace_hosts(plan, {0, 1}, spares);
  CHECK(done.sentences.empty());
  CHECK(done.unreplaced == std::map<int, std::string>{
                               {0, "no spare host is left with 2 slots for those of host large"},
                               {1, "no spare host is left with 1 slot for those of host small"}});
}

}  // namespace hvd::launcher
