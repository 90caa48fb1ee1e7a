// Tests of the bootstrap plugins' parsers: lines of PMI-1, variables of a Slurm step and of torchrun.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "base/text.h"
#include "bootstrap/pmi/pmi_wire.h"
#include "bootstrap/slurm/step.h"
#include "bootstrap/torch/process_group.h"

using namespace hvd;
using namespace hvd::bootstrap;

TEST_CASE("a line of PMI is its fields, and a message may have blanks") {
  const auto answer = parse_pmi("cmd=get_result rc=0 msg=success value=0a1b");
  REQUIRE(answer.ok());
  CHECK(answer->at("value") == "0a1b");
  CHECK(check_pmi(*answer, "get_result").ok());
  CHECK(check_pmi(*answer, "put_result").message() ==
        "the PMI server answers 'get_result' where 'put_result' was expected");

  const auto failed = parse_pmi("cmd=put_result rc=-1 msg=no room for this");
  REQUIRE(failed.ok());
  CHECK(check_pmi(*failed, "put_result").message() ==
        "the PMI server answers put_result with code -1: no room for this");
  CHECK(check_pmi(*parse_pmi(""), "maxes").code() == Code::kInternal);

  for (const char* line : {"hello", "=x", "cmd=a cmd=b"}) {
    CAPTURE(line);
    CHECK(parse_pmi(line).status().code() == Code::kInvalidArgument);
  }
}

TEST_CASE("the hosts of Slurm's lists") {
  for (const auto& pair :
       {std::pair{"a,b", "a b"},
        {"n[01-03,20],gpu3", "n01 n02 n03 n20 gpu3"},
        {"n[7]", "n7"},
        {"n[9-10]", "n9 n10"},
        {"rack[1-2]node[03,09]", "rack1node03 rack1node09 rack2node03 rack2node09"},
        {"node-1.example.org", "node-1.example.org"}}) {
    CAPTURE(pair.first);
    const auto hosts = hosts_of_step(pair.first);
    REQUIRE(hosts.ok());
    CHECK(join(*hosts, " ") == pair.second);
  }
  for (const char* list : {"", ",a", "a,", "n[01", "n01]", "n[a-b]", "n[2-1]", "a b", "a;rm",
                           "n[0-999999999999999999]"}) {
    CAPTURE(list);
    CHECK(hosts_of_step(list).status().code() == Code::kInvalidArgument);
  }
}

TEST_CASE("the tasks of each node of a step") {
  const auto tasks = [](std::string_view text, int64_t node) {
    return tasks_of_node(text, node).value_or(-1);
  };
  CHECK(tasks("2", 0) == 2);
  CHECK(tasks("2(x3),1", 2) == 2);
  CHECK(tasks("2(x3),1", 3) == 1);
  CHECK(tasks("4,3(x2)", 2) == 3);
  for (const char* text : {"", "0", "2(x0)", "2(x", "2(x3", "x", "2,,1"}) {
    CAPTURE(text);
    CHECK(tasks(text, 3) == -1);
  }
  CHECK(tasks("2(x3),1", 4) == -1);
  CHECK(tasks("2", -1) == -1);
}

TEST_CASE("steps have ports of their own, below those that the kernel hands out") {
  std::set<uint16_t> first;
  for (int64_t job = 1; job <= 100; ++job) {
    for (int64_t step = 0; step < 10; ++step) {
      std::set<uint16_t> ports;
      for (int attempt = 0; attempt < kStepPorts; ++attempt) {
        const uint16_t port = port_of_step(job, step, attempt);
        CHECK(port >= 20000);
        CHECK(port < 32000);
        ports.insert(port);
      }
      CHECK(ports.size() == kStepPorts);
      first.insert(port_of_step(job, step, 0));
    }
  }
  // 1,000 jobs choose among 12,000 ports; about 40 collide by chance.
  CHECK(first.size() > 900);
}

namespace {

hvd::Result<ProcessGroup> group_of(const std::map<std::string, std::string>& variables) {
  return process_group_of([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

}  // namespace

TEST_CASE("the process group of torchrun, and the variables that are missing") {
  std::map<std::string, std::string> variables = {{"RANK", "1"},        {"WORLD_SIZE", "4"},
                                                  {"LOCAL_RANK", "1"},  {"LOCAL_WORLD_SIZE", "2"},
                                                  {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
  const auto group = group_of(variables);
  REQUIRE(group.ok());
  CHECK(group->rank == 1);
  CHECK(group->size == 4);
  CHECK(group->local_rank == 1);
  CHECK(group->local_size == 2);
  CHECK(!group->has_one_host());
  CHECK(group->port == 29500);
  for (const char* missing : {"RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    CAPTURE(missing);
    auto fewer = variables;
    fewer.erase(missing);
    CHECK(group_of(fewer).status().message().find(missing) != std::string::npos);
  }
  for (const auto& variable : {std::pair{"RANK", "4"},
                               {"RANK", "x"},
                               {"LOCAL_RANK", "2"},
                               {"LOCAL_WORLD_SIZE", "5"},
                               {"MASTER_PORT", "0"}}) {
    CAPTURE(variable.first);
    auto wrong = variables;
    wrong[variable.first] = variable.second;
    CHECK(group_of(wrong).status().code() == Code::kInvalidArgument);
  }
  variables["WORLD_SIZE"] = "1";
  CHECK(group_of(variables).status().code() == Code::kFailedPrecondition);
  CHECK(group_of({}).status().code() == Code::kFailedPrecondition);
}

TEST_CASE("the ports of a process group differ from each other and from MASTER_PORT") {
  ProcessGroup group;
  group.address = "a";
  for (int port = 20000; port < 20100; ++port) {
    group.port = static_cast<uint16_t>(port);
    std::set<uint16_t> ports;
    for (int attempt = 0; attempt < kGroupPorts; ++attempt) {
      const uint16_t chosen = port_of_group(group, 0, 0, attempt);
      CHECK(chosen >= 20000);
      CHECK(chosen < 32000);
      CHECK(chosen != group.port);
      ports.insert(chosen);
      const uint16_t in_range = port_of_group(group, 20000, 20009, attempt);
      CHECK(in_range >= 20000);
      CHECK(in_range <= 20009);
      CHECK(in_range != group.port);
    }
    CHECK(ports.size() == kGroupPorts);
  }
}
