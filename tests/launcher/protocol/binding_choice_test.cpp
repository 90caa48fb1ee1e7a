#include "launcher/protocol/binding_choice.h"

#include <doctest/doctest.h>

#include <map>

using namespace hvd;
using namespace hvd::launcher;

namespace {

using Given = std::map<std::string, std::string, std::less<>>;

Result<BindingChoice> choose(const Given& given) {
  return parse_binding([&](std::string_view key) {
    const auto found = given.find(key);
    return found == given.end() ? std::string() : found->second;
  });
}

std::string error(const Given& given) { return choose(given).status().message(); }

}  // namespace

TEST_CASE("Ranks are not bound unless a setting asks for it") {
  CHECK(choose({})->object == BindingObject::kNone);
  CHECK(choose({{"bind_to", "none"}, {"map_by", "slot"}})->object == BindingObject::kNone);
}

TEST_CASE("Words of mpirun and torchrun choose objects") {
  CHECK(choose({{"bind_to", "CORE"}})->object == BindingObject::kCore);
  CHECK(choose({{"bind_to", "package"}})->object == BindingObject::kSocket);
  CHECK(choose({{"bind_to", "node"}})->object == BindingObject::kGpu);
  const auto cores = choose({{"map_by", "slot:PE=4"}});
  CHECK((cores->object == BindingObject::kCore && cores->cores_per_rank == 4));
  const auto nodes = choose({{"map_by", "ppr:2:numa"}});
  CHECK((nodes->object == BindingObject::kNuma && nodes->ranks_per_node == 2));
  const auto both = choose({{"map_by", "ppr:2:NUMA:pe=3"}});
  CHECK((both->object == BindingObject::kCore && both->ranks_per_node == 2 &&
         both->cores_per_rank == 3));
  CHECK(choose({{"cpus_per_rank", "2"}})->object == BindingObject::kCore);
  CHECK(choose({{"bind_to", "numa"}, {"no_smt", "1"}})->is_one_thread);
}

TEST_CASE("Lists of CPUs are one for each local rank") {
  const auto choice = choose({{"cpu_list", "3,0-1;5"}});
  REQUIRE(choice.ok());
  CHECK(choice->lists == std::vector<std::vector<int>>{{0, 1, 3}, {5}});
  CHECK(cpu_list({0, 1, 3}) == "0-1,3");
}

TEST_CASE("Other words get a sentence that names the flag and what to write") {
  CHECK(error({{"bind_to", "l3cache"}}).find("hwloc-bind or numactl") != std::string::npos);
  CHECK(error({{"bind_to", "core:2"}}).starts_with("--bind-to core:2: write none, auto"));
  for (const char* map : {"numa", "ppr:2:socket", "ppr:x:numa", "slot:PE=0", ":", "node:PE="})
    CHECK_MESSAGE(!choose({{"map_by", map}}).ok(), map);
  for (const char* list : {"", ";", "1-", "-1", "3-1", "a", "1;;2", "99999"}) {
    CAPTURE(list);
    CHECK((list[0] == 0 || error({{"cpu_list", list}}).starts_with("--cpu-list: '")));
  }
  CHECK(error({{"bind_to", "numa"}, {"cpus_per_rank", "2"}}).find("need --bind-to core") !=
        std::string::npos);
  CHECK(error({{"bind_to", "gpu"}, {"map_by", "ppr:1:numa"}}).find("needs --bind-to numa") !=
        std::string::npos);
  CHECK(error({{"bind_to", "core"}, {"cpu_list", "0"}}).find("give one of them") !=
        std::string::npos);
  CHECK(error({{"no_smt", "1"}}).starts_with("--no-smt"));
}

TEST_CASE("Ranks inherit no flag of binding") {
  CHECK(without_binding({{"HOROVOD_BIND_TO", "core"},
                         {"HOROVOD_BOUND_CPUS", "0"},
                         {"HOROVOD_CPU_LIST", "0"},
                         {"HOROVOD_REPORT_BINDINGS", "1"}}) ==
        Environment{{"HOROVOD_BOUND_CPUS", "0"}});
}
