#include "launcher/allocation/slurm_nodes.h"

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace hvd::launcher {
namespace {

std::vector<SlurmNode> nodes_in(std::string_view text) {
  auto nodes = parse_slurm_nodes(text, "7");
  REQUIRE_MESSAGE(nodes.ok(), nodes.status().message());
  return *std::move(nodes);
}

}  // namespace

TEST_CASE("each node has its own resources, and not the sum of the job") {
  const auto nodes = nodes_in(
      "JobId=7 JobName=wrap\n"
      "   NodeList=a,n[1-2]\n"
      "   JOB_GRES=gpu:a100:5,gpu:h100:2,shard:3\n"
      "     Nodes=a CPU_IDs=0-3 Mem=0 GRES=gpu:a100:2(IDX:0-1),gpu:h100:0(IDX:)\n"
      "     Nodes=n[1-2] CPU_IDs=0,2 Mem=0 "
      "GRES=gpu:a100:1(IDX:1),gpu:h100:1(IDX:2,3),shard:3(3/8,0/8)\n"
      "   MinCPUsNode=1 MinMemoryNode=0\n"
      "   TresPerNode=gres:gpu:a100:1,gres:gpu:h100:1,gres:shard:3\n");
  REQUIRE(nodes.size() == 3);
  CHECK(nodes[0].name == "a");
  CHECK(nodes[0].resources == "gpu:a100:2");
  CHECK(nodes[0].gpus == 2);
  CHECK(nodes[0].component == -1);
  CHECK(nodes[0].cpus == 4);
  CHECK(nodes[1].cpus == 2);
  CHECK(nodes[2].name == "n2");
  CHECK(nodes[2].resources == "gpu:a100:1,gpu:h100:1,shard:3");
  CHECK(nodes[2].gpus == 2);
}

TEST_CASE("the time from SIGTERM to SIGKILL of a step is a line of Slurm's settings") {
  CHECK(parse_kill_wait("KillOnBadExit           = 0\nKillWait                = 30 sec\n") == 30);
  CHECK(parse_kill_wait("UnkillableStepTimeout = 60 sec\nKillWait =").has_value() == false);
  CHECK_FALSE(parse_kill_wait("KillWait = -1 sec\nKillWait = soon\n"));
  CHECK_FALSE(parse_kill_wait(""));
}

TEST_CASE("a job that is over, or waits, has no nodes") {
  for (const std::string state : {"COMPLETED", "PENDING", "CANCELLED"}) {
    const auto nodes = parse_slurm_nodes(
        "JobId=7 JobName=x\n   JobState=" + state + " Reason=None\n   NodeList=a\n", "7");
    CHECK(nodes.status().message() == "scontrol calls it " + state);
  }
  CHECK(nodes_in("JobId=7 JobName=x\n   JobState=RUNNING Reason=None\n   NodeList=a\n").size() ==
        1);
}

TEST_CASE("a resource that the job requests without a type has none in the step either") {
  for (const char* request : {"TresPerNode=gres:gpu:4", "TresPerJob=gres:gpu:8",
                              "TresPerTask=gres/gpu:1", "TresPerSocket=gres:gpu"}) {
    const auto nodes =
        nodes_in(std::string("JobId=7 JobName=wrap\n"
                             "     Nodes=a-b CPU_IDs=0 Mem=0 "
                             "GRES=gpu:a100:2(IDX:0-1),gpu:h100:2(IDX:2-3),shard:x:2(1/8)\n   ") +
                 request + "\n");
    REQUIRE(nodes.size() == 1);
    CHECK_MESSAGE(nodes[0].resources == "gpu:4,shard:x:2", request);
    CHECK(nodes[0].gpus == 4);
  }
  CHECK(nodes_in("JobId=7\n Nodes=a GRES=gpu:a100:1(IDX:0)\n TresPerNode=gres:gpu:a100:1\n")[0]
            .resources == "gpu:a100:1");
}

TEST_CASE("a job of whole nodes has its resources by type, whatever it requests") {
  const auto nodes = nodes_in(
      "JobId=7 JobName=wrap\n"
      "     Nodes=a-b CPU_IDs=0-7 Mem=0 GRES=gpu:a100:2(IDX:0-1),gpu:h100:2(IDX:2-3)\n"
      "   OverSubscribe=NO Contiguous=0 Licenses=(null) Network=(null)\n"
      "   TresPerNode=gres:gpu:1\n");
  REQUIRE(nodes.size() == 1);
  CHECK(nodes[0].resources == "gpu:a100:2,gpu:h100:2");
  CHECK(nodes[0].gpus == 4);
}

TEST_CASE("a resource without device files has its number in parentheses") {
  const auto nodes = nodes_in(
      "JobId=7 JobName=wrap\n"
      "     Nodes=a CPU_IDs=0 Mem=0 GRES=fan(CNT:100),net:fast(CNT:5000000000),gpu:a100:1(IDX:0)\n"
      "     Nodes=b CPU_IDs=0 Mem=0 GRES=fan(CNT:0),gpu:2(IDX:0,3)\n");
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0].resources == "fan:100,net:fast:5000000000,gpu:a100:1");
  CHECK(nodes[0].gpus == 1);
  CHECK(nodes[1].resources == "gpu:2");
}

TEST_CASE("nodes of other tasks of a job's array do not count") {
  const auto nodes = nodes_in(
      "JobId=7 ArrayJobId=7 ArrayTaskId=1 JobName=x\n   NodeList=a\n"
      "     Nodes=a CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:2-3)\n"
      "JobId=8 ArrayJobId=7 ArrayTaskId=0 JobName=x\n   NodeList=a,c\n"
      "     Nodes=a,c CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)\n");
  REQUIRE(nodes.size() == 1);
  CHECK(nodes[0].name == "a");
  CHECK(nodes[0].resources == "gpu:2");
}

TEST_CASE("arguments of the job's script are no fields") {
  const auto nodes = nodes_in(
      "JobId=7 JobName=x JobId=8\n   NodeList=a\n     Nodes=a CPU_IDs=0 Mem=0 GRES=\n"
      "   Command=/job.sh NodeList=c OverSubscribe=NO Nodes=d\n");
  REQUIRE(nodes.size() == 1);
  CHECK(nodes[0].name == "a");
}

TEST_CASE("a node that joined the job has no line, and is in the list of nodes") {
  const auto nodes = nodes_in(
      "JobId=7 HetJobId=7 HetJobOffset=0\n   ReqNodeList=a ExcNodeList=c\n   NodeList=a,n[1-2]\n"
      "     Nodes=a CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)\n");
  REQUIRE(nodes.size() == 3);
  CHECK(nodes[0].resources == "gpu:2");
  CHECK(nodes[2].name == "n2");
  CHECK(nodes[2].resources.empty());
  CHECK(nodes[2].component == 0);
  CHECK(nodes_in("JobId=7\n   NodeList=(null)\n").empty());
}

TEST_CASE("a node without resources has none") {
  const auto nodes =
      nodes_in("     Nodes=a CPU_IDs=0-1 Mem=0 GRES=\n     Nodes=b CPU_IDs=0 Mem=0 GRES=(null)\n");
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0].resources.empty());
  CHECK(nodes[1].resources.empty());
  CHECK(nodes_in("slurm_load_jobs error: Invalid job id specified\n").empty());
}

TEST_CASE("the components of a heterogeneous job have numbers") {
  const auto nodes = nodes_in(
      "JobId=7 HetJobId=7 HetJobOffset=0 JobName=x\n     Nodes=a CPU_IDs=0 Mem=0 GRES=\n"
      "JobId=8 HetJobId=7 HetJobOffset=1 JobName=x\n     Nodes=b CPU_IDs=0 Mem=0 "
      "GRES=gpu:1(IDX:3)\n");
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0].component == 0);
  CHECK(nodes[1].component == 1);
  CHECK(nodes[1].resources == "gpu:1");
}

TEST_CASE("batch, interactive and external steps are no parts of a job") {
  const auto in_step = [](const char* number) {
    return is_in_plain_step([number](std::string_view name) -> std::optional<std::string> {
      return name == "SLURM_STEP_ID" && number != nullptr ? std::optional<std::string>(number)
                                                          : std::nullopt;
    });
  };
  CHECK(in_step("0"));
  CHECK(in_step("12"));
  CHECK_FALSE(in_step(nullptr));
  CHECK_FALSE(in_step("4294967290"));
  CHECK_FALSE(in_step("4294967291"));
}

TEST_CASE("without scontrol, the variables name the nodes of each component") {
  const std::map<std::string, std::string, std::less<>> variables = {
      {"SLURM_HET_SIZE", "2"},
      {"SLURM_JOB_NODELIST", "a"},
      {"SLURM_JOB_NODELIST_HET_GROUP_0", "a"},
      {"SLURM_JOB_NODELIST_HET_GROUP_1", "n[1-2],b"}};
  const auto variable = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  const auto nodes = slurm_nodes_in(variable);
  REQUIRE(nodes.ok());
  std::vector<std::pair<std::string, int>> found;
  for (const SlurmNode& node : *nodes) found.emplace_back(node.name, node.component);
  CHECK(found ==
        std::vector<std::pair<std::string, int>>{{"a", 0}, {"n1", 1}, {"n2", 1}, {"b", 1}});
  const auto alone = slurm_nodes_in([](std::string_view name) -> std::optional<std::string> {
    if (name == "SLURM_NODELIST") return "c";
    return {};
  });
  REQUIRE(alone.ok());
  REQUIRE(alone->size() == 1);
  CHECK((*alone)[0].component == -1);
}

}  // namespace hvd::launcher
