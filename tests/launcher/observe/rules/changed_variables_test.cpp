#include "launcher/observe/rules/changed_variables.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/launcher/hosts/running_hosts.h"

namespace hvd::launcher {
namespace {

// Two ranks on host a and two on host b.
class Variables {
 public:
  Variables() {
    for (int rank = 0; rank < 4; ++rank) hosts_.rank(rank).set_changes({});
  }
  void forget(int rank) { hosts_.rank(rank).set_changes({VariableChange{}}); }
  void set(int rank, const char* name, const std::string& found) { add(rank, name, found); }
  void unset(int rank, const char* name) { add(rank, name, ""); }
  // Sets the launcher's address of rank 0's host for a host.
  void give(int host, const char* address) {
    hosts_.host(host).order().environment = {{"MASTER_ADDR", address}};
  }
  bool is_whole() const { return makes_whole_worlds(hosts_); }
  std::string sentence() const { return changed_variables(hosts_); }

 private:
  void add(int rank, const char* name, std::string found) {
    RankRun& run = hosts_.rank(rank);
    std::vector<VariableChange> changes = run.changes();
    changes.push_back({name, "given", std::move(found)});
    run.set_changes(std::move(changes));
  }

  RunningHosts hosts_;
};

}  // namespace

TEST_CASE(
    "variables that are the launcher's, or all ranks', or make several worlds, are no fault") {
  Variables variables;
  SUBCASE("the launcher's") {}
  SUBCASE("another port of all ranks") {
    for (int rank = 0; rank < 4; ++rank) variables.set(rank, "MASTER_PORT", "29500");
  }
  SUBCASE("no variable in any rank") {
    for (int rank = 0; rank < 4; ++rank) {
      for (const std::string_view name : kWorldVariables) variables.unset(rank, name.data());
    }
  }
  SUBCASE("the ranks are a part of a larger world") {
    for (int rank = 0; rank < 4; ++rank) {
      variables.set(rank, "WORLD_SIZE", "8");
      variables.set(rank, "RANK", cat(4 + rank));
      variables.set(rank, "MASTER_ADDR", "other");
    }
  }
  SUBCASE("a world for each host") {
    for (int rank = 0; rank < 4; ++rank) {
      variables.set(rank, "WORLD_SIZE", "2");
      variables.set(rank, "RANK", cat(rank % 2));
      variables.set(rank, "MASTER_ADDR", rank < 2 ? "a" : "b");
    }
  }
  SUBCASE("a world for each rank, with its own GPU") {
    for (int rank = 0; rank < 4; ++rank) {
      variables.set(rank, "WORLD_SIZE", "1");
      variables.set(rank, "RANK", "0");
      variables.set(rank, "LOCAL_RANK", "0");
      variables.set(rank, "MASTER_PORT", cat(29500 + rank));
    }
  }
  SUBCASE("a world for each rank, at the same port") {
    for (int rank = 0; rank < 4; ++rank) {
      variables.set(rank, "WORLD_SIZE", "1");
      variables.set(rank, "RANK", "0");
    }
  }
  SUBCASE("a world for each host, at the same local address") {
    for (int rank = 0; rank < 4; ++rank) {
      variables.set(rank, "WORLD_SIZE", "2");
      variables.set(rank, "RANK", cat(rank % 2));
      variables.set(rank, "MASTER_ADDR", "localhost");
    }
  }
  SUBCASE("one address for all, which the launcher has given to one host") {
    variables.give(0, "10.0.0.1");
    variables.give(1, "192.168.0.1");
    for (int rank : {2, 3}) variables.set(rank, "MASTER_ADDR", "10.0.0.1");
  }
  SUBCASE("a local address of one rank, where the launcher has given another one") {
    for (int host : {0, 1}) variables.give(host, "127.0.0.1");
    variables.set(1, "MASTER_ADDR", "localhost");
  }
  SUBCASE("an evaluation beside a training of three") {
    variables.unset(3, "RANK");
    variables.unset(3, "WORLD_SIZE");
    for (int rank = 0; rank < 3; ++rank) variables.set(rank, "WORLD_SIZE", "3");
  }
  SUBCASE("a port of one host, and a rank whose variables are unknown") {
    variables.set(2, "MASTER_PORT", "29500");
    variables.forget(3);
  }
  SUBCASE("a local rank of 0 for each rank's own GPU") {
    for (int rank : {1, 3}) variables.set(rank, "LOCAL_RANK", "0");
  }
  CHECK(variables.is_whole());
  CHECK(variables.sentence().empty());
}

TEST_CASE("the sentence names ranks, variables, both values and the remedy") {
  Variables variables;
  SUBCASE("a port of one host") {
    variables.set(2, "MASTER_PORT", "29500");
    variables.set(3, "MASTER_PORT", "29500");
    CHECK(
        variables.sentence() ==
        "ranks 2-3 on b began with MASTER_PORT=29500 (from the launcher: given): remove what sets "
        "or unsets MASTER_PORT there, for example a script, a wrapper or the shell's startup file");
  }
  SUBCASE("a missing variable beside another") {
    variables.unset(1, "RANK");
    variables.set(1, "WORLD_SIZE", "3");
    CHECK(variables.sentence().starts_with(
        "rank 1 on a began with no RANK (from the launcher: given) and WORLD_SIZE=3 (from the "
        "launcher: given): remove what sets or unsets RANK and WORLD_SIZE there"));
  }
  SUBCASE("a rank that trains alone beside ranks that wait for it") {
    variables.set(3, "RANK", "0");
    variables.set(3, "WORLD_SIZE", "1");
    CHECK(variables.sentence().starts_with("rank 3 on b began with RANK=0 (from the launcher: "));
  }
  SUBCASE("a rank twice") {
    variables.set(3, "RANK", "0");
    CHECK(variables.sentence().starts_with("rank 3 on b began with RANK=0 (from the launcher: "));
  }
  SUBCASE("an address of one host that the launcher has given to no host") {
    variables.give(0, "10.0.0.1");
    variables.give(1, "192.168.0.1");
    for (int rank : {2, 3}) variables.set(rank, "MASTER_ADDR", "10.0.0.2");
    CHECK(variables.sentence().starts_with("ranks 2-3 on b began with MASTER_ADDR=10.0.0.2 (from"));
  }
  SUBCASE("a local address of one of two hosts") {
    for (int rank : {2, 3}) variables.set(rank, "MASTER_ADDR", "localhost");
    CHECK(
        variables.sentence().starts_with("ranks 2-3 on b began with MASTER_ADDR=localhost (from"));
  }
  SUBCASE("many") {
    for (int rank = 0; rank < 4; ++rank) variables.set(rank, "MASTER_ADDR", cat("x", rank));
    CHECK(variables.sentence().find(", 1 more differences: remove") != std::string::npos);
  }
  CHECK_FALSE(variables.is_whole());
}

TEST_CASE("a local rank of some ranks leaves the world whole") {
  Variables variables;
  variables.unset(1, "LOCAL_RANK");
  CHECK(variables.is_whole());
  CHECK(variables.sentence().starts_with(
      "rank 1 on a began with no LOCAL_RANK (from the launcher: "));
}

}  // namespace hvd::launcher
