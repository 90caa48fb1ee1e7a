// Tests of what the bootstrap plugins parse: lines of PMI-1, and variables of a Slurm step.
#include <doctest/doctest.h>

#include <set>

#include "bootstrap/pmi/pmi_wire.h"
#include "bootstrap/slurm/step.h"

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

TEST_CASE("the first host of Slurm's lists") {
  for (const auto& pair : {std::pair{"a,b", "a"},
                           {"n[01-16,20],gpu3", "n01"},
                           {"n[7]", "n7"},
                           {"rack[1-2]node[03,09]", "rack1node03"},
                           {"node-1.example.org", "node-1.example.org"}}) {
    CAPTURE(pair.first);
    const auto host = first_host(pair.first);
    REQUIRE(host.ok());
    CHECK(*host == pair.second);
  }
  for (const char* list : {"", ",a", "n[01", "n01]", "n[[1]]", "n[a-b]", "a b", "a;rm"}) {
    CAPTURE(list);
    CHECK(first_host(list).status().code() == Code::kInvalidArgument);
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
  // 1,000 of 12,000 places; by chance some 40 share theirs.
  CHECK(first.size() > 900);
}
