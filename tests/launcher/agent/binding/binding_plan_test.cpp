#include "launcher/agent/binding/binding_plan.h"

#include <doctest/doctest.h>
#include <hwloc.h>

#include <cstdlib>
#include <filesystem>

#include "base/text.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

using Words = std::vector<std::string>;

// A generated host: a description in hwloc's words, and GPUs at each NUMA node.
class TestHost {
 public:
  explicit TestHost(const char* description, int gpus = 0, const char* gpu = "0302 [10de:2330]",
                    bool has_places = true) {
    hwloc_topology_t plain = nullptr;
    open(plain);
    REQUIRE(::hwloc_topology_set_synthetic(plain, description) == 0);
    REQUIRE(::hwloc_topology_load(plain) == 0);
    char* buffer = nullptr;
    int size = 0;
    REQUIRE(::hwloc_topology_export_xmlbuffer(plain, &buffer, &size, 0) == 0);
    std::string text = buffer;
    ::hwloc_free_xmlbuffer(plain, buffer);
    ::hwloc_topology_destroy(plain);
    int number = 0;
    for (size_t at = 0; (at = text.find("\"NUMANode\"", at)) != std::string::npos;) {
      at = text.find("</object>", at) + std::string_view("</object>").size();
      for (int each = 0; each < gpus; ++each)
        text.insert(has_places ? at : text.rfind("</object>"), device(number++, gpu));
    }
    open(topology_);
    REQUIRE(::hwloc_topology_set_xmlbuffer(topology_, text.c_str(),
                                           static_cast<int>(text.size()) + 1) == 0);
    REQUIRE(::hwloc_topology_load(topology_) == 0);
  }
  explicit TestHost(const std::filesystem::path& file) {
    open(topology_);
    REQUIRE(::hwloc_topology_set_xml(topology_, file.c_str()) == 0);
    REQUIRE(::hwloc_topology_load(topology_) == 0);
  }
  TestHost(const TestHost&) = delete;
  ~TestHost() { ::hwloc_topology_destroy(topology_); }

  HostTopology topology(const std::vector<int>& allowed) const {
    return convert(topology_, allowed);
  }
  HostTopology topology() const {
    std::vector<int> all;
    const hwloc_const_cpuset_t set = ::hwloc_topology_get_allowed_cpuset(topology_);
    for (int cpu = ::hwloc_bitmap_first(set); cpu >= 0; cpu = ::hwloc_bitmap_next(set, cpu))
      all.push_back(cpu);
    return topology(all);
  }

 private:
  static void open(hwloc_topology_t& topology) {
    ::setenv("HWLOC_PLUGINS_PATH", "", 1);
    ::hwloc_topology_init(&topology);
    ::hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  }
  static std::string device(int number, const char* kind) {
    return cat("<object type=\"Bridge\" gp_index=\"", 9000 + number,
               "\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[1", number, "-1", number,
               "]\"><object type=\"PCIDev\" gp_index=\"", 9100 + number, "\" pci_busid=\"0000:1",
               number, ":00.0\" pci_type=\"", kind,
               " [0000:0000] a1\" pci_link_speed=\"0.0\"/></object>");
  }

  hwloc_topology_t topology_ = nullptr;
};

// Two sockets with a NUMA node each. The kernel numbers the first threads of all cores before the second ones.
constexpr char kTwoSockets[] = "package:2 [numa] core:8 pu:2(indexes=2*16:16*1)";
constexpr char kSmall[] = "package:2 [numa] core:2 pu:2(indexes=2*4:4*1)";

BindingChoice choice_of(const Words& settings) {
  const auto choice = parse_binding([&](std::string_view key) -> std::string {
    for (const std::string& each : settings) {
      if (each.substr(0, each.find('=')) == key) return each.substr(each.find('=') + 1);
    }
    return "";
  });
  REQUIRE(choice.ok());
  return *choice;
}

// The CPUs of each rank, as in "0-1;2-3", or the error.
std::string plan(const HostTopology& topology, size_t ranks, const Words& settings,
                 const Excluded& excluded = {}) {
  const auto places = plan_binding(choice_of(settings), topology, ranks, excluded);
  if (!places.ok()) return places.status().message();
  Words lists;
  for (const RankCpus& place : *places)
    lists.push_back(place.cpus.empty() ? "-" : cpu_list(place.cpus));
  return join(lists, ";");
}

}  // namespace

TEST_CASE("Ranks of a host with two sockets and eight GPUs get these CPUs") {
  const TestHost host(kTwoSockets, 4);
  const HostTopology topology = host.topology();
  REQUIRE(topology.cores.size() == 16);
  REQUIRE(topology.gpus.size() == 8);
  CHECK(plan(topology, 3, {"bind_to=core"}) == "0,16;1,17;2,18");
  CHECK(plan(topology, 3, {"bind_to=core", "no_smt=1"}) == "0;1;2");
  CHECK(plan(topology, 2, {"cpus_per_rank=4"}) == "0-3,16-19;4-7,20-23");
  // A node has room for one rank of five cores, so the cores of three ranks cross the nodes.
  CHECK(plan(topology, 2, {"map_by=slot:PE=5"}) == "0-4,16-20;8-12,24-28");
  CHECK(plan(topology, 3, {"map_by=slot:PE=5"}) == "0-4,16-20;5-9,21-25;10-14,26-30");
  CHECK(plan(topology, 4, {"bind_to=numa"}) == "0-7,16-23;0-7,16-23;8-15,24-31;8-15,24-31");
  CHECK(plan(topology, 3, {"bind_to=socket"}) == "0-7,16-23;0-7,16-23;8-15,24-31");
  CHECK(plan(topology, 4, {"map_by=ppr:2:numa", "bind_to=core"}) == "0,16;1,17;8,24;9,25");
  CHECK(plan(topology, 2, {"map_by=ppr:1:numa"}) == "0-7,16-23;8-15,24-31");
  CHECK(plan(topology, 8, {"bind_to=gpu", "no_smt=1"}) == "0-7;0-7;0-7;0-7;8-15;8-15;8-15;8-15");
  CHECK(plan(topology, 8, {"bind_to=auto"}) == plan(topology, 8, {"bind_to=gpu"}));
  CHECK(plan(topology, 2, {"bind_to=auto"}) == "0-7,16-23;8-15,24-31");
  CHECK(plan(topology, 1, {"bind_to=auto"}) == "-");
  CHECK(plan(topology, 3, {"cpu_list=0,2-3;31"}) == "0,2-3;31;0,2-3");
  CHECK(plan(topology, 2, {"bind_to=none"}) == "-;-");
  CHECK(plan(topology, 2, {"bind_to=core"}, {.cores = {0, 2}}) == "1,17;3,19");
}

TEST_CASE(
    "Where another agent has started ranks of the host, the others get the places of theirs") {
  const HostTopology topology = TestHost(kSmall).topology();
  CHECK(plan(topology, 4, {"bind_to=core"}, {.cores = {0, 2, 3}, .ranks = {0, 1, 2}}) ==
        "-;-;-;1,5");
  CHECK(plan(topology, 4, {"map_by=ppr:2:numa", "bind_to=core"},
             {.cores = {0, 2}, .ranks = {0, 2}}) == "-;1,5;-;3,7");
  CHECK(plan(topology, 4, {"bind_to=core"}, {.cores = {0, 1, 2, 3}, .ranks = {0, 1, 2}})
            .starts_with(
                "--bind-to core needs 1 core for 1 rank, and the agent may use 4, of which"));
}

TEST_CASE("A host without known CPUs is refused, and auto binds nothing there") {
  for (const char* object : {"bind_to=core", "bind_to=numa", "bind_to=gpu", "cpu_list=0"})
    CHECK(plan({}, 1, {object}).starts_with("hwloc finds none of the CPUs"));
  CHECK(plan({}, 2, {"bind_to=auto"}) == "-;-");
}

TEST_CASE("A plan that cannot be is refused in one sentence") {
  const TestHost host(kSmall, 1);
  const HostTopology topology = host.topology();
  const auto has = [&](size_t ranks, const Words& settings, const char* part,
                       const Excluded& excluded = {}) {
    CAPTURE(plan(topology, ranks, settings, excluded));
    CHECK(plan(topology, ranks, settings, excluded).find(part) != std::string::npos);
  };
  has(5, {"bind_to=core"}, "--bind-to core needs 5 cores for 5 ranks, and the agent may use 4;");
  has(3, {"bind_to=core", "cpus_per_rank=2"}, "needs 6 cores for 3 ranks");
  has(2, {"bind_to=core"}, "running jobs of yours have 3", {.cores = {0, 1, 2}});
  has(4, {"map_by=ppr:3:numa", "bind_to=core"}, "with 3 ranks on each NUMA node");
  has(3, {"bind_to=gpu"}, "the host shows 2 for 3 ranks;");
  has(5, {"map_by=ppr:2:numa"}, "has places for 4 ranks on 2 NUMA nodes");
  has(2, {"cpu_list=0;7-9"}, "CPU 8-9 is not among the CPUs 0-7");
}

TEST_CASE("A plan uses allowed CPUs only, also with gaps") {
  const TestHost host("package:2 [numa] core:4 pu:2(indexes=2*8:8*1)");
  const HostTopology topology = host.topology({1, 2, 6, 13});
  REQUIRE(topology.cores.size() == 4);
  CHECK(plan(topology, 4, {"bind_to=core"}) == "1;2;13;6");
  CHECK(plan(topology, 2, {"bind_to=numa"}) == "1-2;6,13");
  CHECK(plan(host.topology({5}), 1, {"bind_to=core"}) == "5");
}

TEST_CASE("A GPU of an unknown place does not bind its rank") {
  CHECK(plan(TestHost(kTwoSockets, 1, "0302 [10de:2330]", false).topology(), 2, {"bind_to=gpu"}) ==
        "-;-");
}

TEST_CASE("Generated trees in the shapes of DGX, MI300X and Grace") {
  const HostTopology dgx =
      TestHost("package:2 [numa] core:56 pu:2(indexes=2*112:112*1)", 4).topology();
  CHECK(plan(dgx, 8, {"bind_to=auto"}).ends_with(";56-111,168-223"));
  const HostTopology mi300x =
      TestHost("package:2 group:4 [numa] core:24 pu:2(indexes=2*192:192*1)", 1, "1200 [1002:74a1]")
          .topology();
  REQUIRE(mi300x.gpus.size() == 8);
  CHECK(plan(mi300x, 8, {"bind_to=gpu"}).starts_with("0-23,192-215;24-47,216-239;"));
  CHECK(plan(mi300x, 2, {"bind_to=auto"}) == "0-95,192-287;96-191,288-383");
  const HostTopology grace = TestHost("package:2 [numa] [numa] core:72 pu:1", 1).topology();
  const auto places = plan_binding(choice_of({"bind_to=gpu"}), grace, 4);
  REQUIRE(places.ok());
  CHECK((*places)[3].node == 2);  // nodes 1 and 3 are memory of GPUs
  CHECK(cpu_list((*places)[3].cpus) == "72-143");
}

TEST_CASE("Ranks never mix kinds of cores, and get fast ones first") {
  HostTopology hybrid;
  for (int cpu = 0; cpu < 6; ++cpu)
    hybrid.cores.push_back({.cpus = {cpu}, .kind = cpu < 3 ? 0 : 1});
  CHECK(plan(hybrid, 4, {"bind_to=core"}) == "3;4;5;0");
  CHECK(plan(hybrid, 2, {"bind_to=core", "cpus_per_rank=2"}) == "3-4;0-1");
}

TEST_CASE(
    "Threads of a rank are its cores, divided among ranks that share them, within the quota") {
  const HostTopology topology = TestHost(kTwoSockets).topology();
  const auto threads = [&](size_t ranks, const Words& settings, double quota) {
    return cores_of_ranks(*plan_binding(choice_of(settings), topology, ranks), topology, quota);
  };
  CHECK(threads(2, {"bind_to=numa"}, 100) == std::vector{8, 8});
  CHECK(threads(6, {"bind_to=numa"}, 100) == std::vector<int>(6, 2));
  CHECK(threads(2, {"bind_to=core", "cpus_per_rank=4"}, 100) == std::vector{4, 4});
  CHECK(threads(2, {"bind_to=numa"}, 6) == std::vector{3, 3});
  CHECK(threads(4, {"bind_to=core"}, 2) == std::vector<int>(4, 1));
}

TEST_CASE("A place is described as in mpirun's report") {
  const HostTopology topology = TestHost(kSmall, 1).topology();
  const auto line = [&](const Words& settings) {
    return describe(plan_binding(choice_of(settings), topology, 2)->back(), topology);
  };
  CHECK(line({"bind_to=core"}) == "cpus 1,5 (1 core of socket 0), memory of node 0 [../BB][../..]");
  CHECK(line({"bind_to=gpu"}) ==
        "cpus 2-3,6-7 (2 cores of socket 1), memory of node 1, GPU 1 0000:11:00.0 [../..][BB/BB]");
  CHECK(line({"cpu_list=0,2"}) == "cpus 0,2 (2 cores of sockets 0, 1) [B./..][B./..]");
  CHECK(line({"bind_to=none"}) == "not bound");
}

TEST_CASE("Plans of real machines keep the rules" *
          doctest::skip(std::getenv("HVD_TEST_TREES") == nullptr)) {
  const char* folder = std::getenv("HVD_TEST_TREES");
  int trees = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    if (file.path().extension() != ".xml") continue;
    CAPTURE(file.path().string());
    const HostTopology topology = TestHost(file.path()).topology();
    if (topology.cores.empty()) continue;
    ++trees;
    std::set<int> seen;
    const auto alone = plan_binding(choice_of({"bind_to=core"}), topology, topology.cores.size());
    REQUIRE(alone.ok());
    for (const RankCpus& place : *alone) {
      CHECK(cores_of(place, topology).size() == 1);
      for (const int cpu : place.cpus) CHECK(seen.insert(cpu).second);
    }
    CHECK_FALSE(
        plan_binding(choice_of({"bind_to=core"}), topology, topology.cores.size() + 1).ok());
    for (const char* object : {"bind_to=numa", "bind_to=socket", "bind_to=auto"}) {
      const auto places = plan_binding(choice_of({object}), topology, 8);
      REQUIRE(places.ok());
      for (const RankCpus& place : *places) {
        for (const Core* core : cores_of(place, topology))
          CHECK((place.node < 0 || core->node == place.node));
      }
    }
  }
  CHECK(trees > 20);
}
