// Jobs that a user resizes or removes ranks and hosts from, and hosts whose agents end soon.
#include <doctest/doctest.h>

#include "launcher/elastic/generations.h"
#include "tests/launcher/elastic/recorded_job.h"

namespace hvd::launcher {
namespace {

TEST_CASE("a resize that is refused changes nothing") {
  TrainingJob job;
  REQUIRE(job.generations.remove_host("b", job.now()).ok());
  CHECK(job.generations.resize(9, job.now()).status().message() ==
        "the hosts of the job have slots for 4 ranks");
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "0 1");
}

TEST_CASE("a host whose agent ends is not taken back by a resize") {
  TrainingJob job;
  job.generations.host_leaves(job.hosts.host(1), "its agent got SIGTERM", 30, job.now());
  static_cast<void>(job.generations.resize(4, job.now()));
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "0 1");
}

TEST_CASE("resize to fewer ranks ends the last slots of the newest hosts, at the next commit") {
  TrainingJob job;
  const auto answer = job.generations.resize(1, job.now());
  REQUIRE(answer.ok());
  CHECK(*answer == "the job goes from 4 to 1 rank when they next commit");
  CHECK(job.updates == std::vector<std::string>{"0:1"});
  CHECK(job.ended.empty());
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "0");
  CHECK(job.ended == std::vector<int>{1});
  CHECK(job.ended_processes == std::vector<int>{1, 2});
  CHECK(job.losses.empty());
  job.wait(100);
  CHECK(job.started.empty());
}

TEST_CASE("resize to more ranks starts processes on free slots") {
  RecordedJob job({.most = 2});
  job.begin({kTwoHosts[0]});
  job.generations.discovered(kTwoHosts, job.now());
  job.ask({0, 1});
  CHECK(job.started.empty());
  const auto answer = job.generations.resize(3, job.now());
  REQUIRE(answer.ok());
  CHECK(*answer == "the job goes from 2 to 3 ranks when the new ones have started");
  CHECK(job.started == std::vector<std::string>{"b:1"});
  job.ask({2});
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1 2+");
}

TEST_CASE(
    "resize down and up again before a commit changes nothing, and ends what has just started") {
  RecordedJob job({.most = 2});
  job.begin({kTwoHosts[0]});
  job.generations.discovered(kTwoHosts, job.now());
  job.ask({0, 1});
  REQUIRE(job.generations.resize(4, job.now()).ok());
  CHECK(job.started == std::vector<std::string>{"b:2"});
  job.ask({2});
  REQUIRE(job.generations.resize(2, job.now()).ok());
  CHECK(job.ended_processes == std::vector<int>{3});
  CHECK(job.ended == std::vector<int>{1});
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1");
}

TEST_CASE("resize refuses what cannot be, in one sentence") {
  RecordedJob job({.least = 2});
  job.begin(kTwoHosts);
  CHECK(job.generations.resize(3, job.now()).error().message() ==
        "the ranks of the job have not started yet");
  job.ask({0, 1, 2, 3});
  CHECK(job.generations.resize(1, job.now()).error().message() ==
        "the job needs at least 2 ranks (--min-np)");
  CHECK(job.generations.resize(5, job.now()).error().message() ==
        "the hosts of the job have slots for 4 ranks");
  CHECK(*job.generations.resize(4, job.now()) == "the job has 4 ranks, and will get no more");
  job.generations.ended(0, 0, "", job.now());
  CHECK(job.generations.resize(3, job.now()).error().message() == "the job ends");
}

TEST_CASE("with a discovery script, resize above the slots waits for hosts") {
  RecordedJob job(of_script());
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  const auto answer = job.generations.resize(3, job.now());
  REQUIRE(answer.ok());
  CHECK(answer->find("when the discovery script names more hosts; it now names 2 slots") !=
        std::string::npos);
  job.generations.discovered(kTwoHosts, job.now());
  CHECK(job.started == std::vector<std::string>{"b:1"});
}

TEST_CASE("a job whose ranks may not change again is not resized") {
  TrainingJob job({.resets = ResetLimit{.resets = 1, .seconds = {}}});
  REQUIRE(job.generations.resize(3, job.now()).ok());
  job.ask({0, 1, 2, 3});
  CHECK(job.generations.resize(2, job.now()).error().message() ==
        "the ranks of the job may not change again (--reset-limit)");
}

TEST_CASE("a removed host leaves at the next commit, and is used again when a resize needs it") {
  TrainingJob job;
  const auto answer = job.generations.remove_host("a", job.now());
  REQUIRE(answer.ok());
  CHECK(*answer ==
        "host a leaves the job when its ranks next commit; its slots stay empty until horovodrun "
        "resize needs them");
  CHECK(job.updates == std::vector<std::string>{"0:1"});
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "2 3");
  CHECK(job.ended == std::vector<int>{0});
  CHECK(job.losses.empty());
  job.wait(100);
  CHECK(job.started.empty());
  CHECK(job.generations.remove_host("a", job.now()).error().message() ==
        "host a is not one of the hosts that the job uses: b");
  REQUIRE(job.generations.resize(2, job.now()).ok());
  CHECK(job.started.empty());
  REQUIRE(job.generations.resize(3, job.now()).ok());
  CHECK(job.started == std::vector<std::string>{"a:1"});
}

TEST_CASE("a removed host is used again when the script drops and names it") {
  TrainingJob job(of_script());
  REQUIRE(job.generations.remove_host("b", job.now()).ok());
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "0 1");
  job.generations.discovered(kTwoHosts, job.now());
  CHECK(job.started.empty());
  job.generations.discovered({kTwoHosts[0]}, job.now());
  job.generations.discovered(kTwoHosts, job.now());
  CHECK(job.started == std::vector<std::string>{"b:2"});
}

TEST_CASE("where hosts join, resize and remove speak of those, and a removed host joins again") {
  GenerationLimits limits = of_script();
  limits.hosts = HostSource::kJoining;
  TrainingJob job(limits);
  CHECK(*job.generations.resize(5, job.now()) ==
        "the job goes from 4 to 5 ranks when more hosts join; the present hosts have 4 slots");
  CHECK(*job.generations.remove_host("b", job.now()) ==
        "host b leaves the job when its ranks next commit; its slots stay empty until horovodrun "
        "resize needs them, or another agent joins there");
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "0 1");
  job.generations.discovered({kTwoHosts[0]}, job.now());  // the agent of host b has ended
  job.generations.discovered(kTwoHosts, job.now());
  CHECK(job.started == std::vector<std::string>{"b:2"});
}

TEST_CASE("a removed rank leaves its slot empty, and its host keeps the others") {
  TrainingJob job({.restarts_ranks = true});
  const auto answer = job.generations.remove_rank(0, job.now());
  REQUIRE(answer.ok());
  CHECK(
      answer->starts_with("rank 0 on host a leaves the job when the ranks next commit; its slot"));
  CHECK(job.generations.remove_rank(0, job.now()).error().message() ==
        "rank 0 is already leaving the job");
  CHECK(job.updates == std::vector<std::string>{"0:1"});
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "1 2 3");
  CHECK(job.ended_processes == std::vector<int>{0});
  CHECK(job.ended.empty());
  job.wait(100);
  CHECK(job.started.empty());
  SUBCASE("the last rank of a host takes the host out") {
    REQUIRE(job.generations.remove_rank(0, job.now()).ok());
    job.ask({1, 2, 3});
    CHECK(job.ranks() == "2 3");
    CHECK(job.ended == std::vector<int>{0});
  }
  SUBCASE("a resize uses the slot again") {
    REQUIRE(job.generations.resize(4, job.now()).ok());
    CHECK(job.started == std::vector<std::string>{"a:1"});
  }
}

TEST_CASE("a resize before the next commit keeps a removed rank") {
  TrainingJob job;
  REQUIRE(job.generations.remove_rank(3, job.now()).ok());
  REQUIRE(job.generations.resize(4, job.now()).ok());
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "0 1 2 3");
  CHECK(job.ended_processes.empty());
}

TEST_CASE("remove refuses what would end the job, and what is not there") {
  TrainingJob job({.least = 3});
  CHECK(
      job.generations.remove_host("b", job.now()).error().message() ==
      "without host b, the hosts of the job have slots for 2 ranks, and the job needs at least 3");
  CHECK(job.generations.remove_host("c", job.now()).error().message() ==
        "host c is not one of the hosts that the job uses: a, b");
  CHECK(job.generations.remove_rank(4, job.now()).error().message() ==
        "the job has no rank 4; its last one is 3");
  REQUIRE(job.generations.remove_rank(1, job.now()).ok());
  CHECK(
      job.generations.remove_rank(2, job.now()).error().message() ==
      "without rank 2, the hosts of the job have slots for 2 ranks, and the job needs at least 3");
}

TEST_CASE("the host that alone has the state is not removed") {
  RecordedJob job({.most = 2});
  job.begin({kTwoHosts[0]});
  job.generations.discovered(kTwoHosts, job.now());
  job.ask({0, 1});
  CHECK(job.generations.remove_host("a", job.now()).error().message() ==
        "without host a, no remaining rank has the training state");
  REQUIRE(job.generations.remove_host("b", job.now()).ok());
  CHECK(job.updates.empty());
}

TEST_CASE("a host whose agent is about to end leaves at the next commit, and nothing is lost") {
  TrainingJob job;
  job.generations.host_leaves(job.hosts.host(0), "its agent got signal 15", 30, job.now());
  REQUIRE(job.said.size() == 1);
  CHECK(job.said[0] ==
        "host a leaves the job: its agent got signal 15; its ranks have 30 s for their next commit "
        "(--leave-grace)");
  CHECK(job.leaves == std::vector<std::string>{"0: 30"});
  CHECK(job.updates == std::vector<std::string>{"0:1"});
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "2 3");
  CHECK(job.ended == std::vector<int>{0});
  CHECK(job.losses.empty());
  job.wait(100);
  CHECK(job.started.empty());
}

TEST_CASE("a host that leaves and does not commit in time is lost") {
  TrainingJob job;
  job.generations.host_leaves(job.hosts.host(0), "its agent got signal 15", 30, job.now());
  job.generations.host_lost(job.hosts.host(0), "host a was lost: no commit", job.now());
  CHECK(job.losses == std::vector<std::string>{"0: host a was lost: no commit"});
  job.ask({2, 3});
  CHECK(job.ranks() == "2 3");
}

TEST_CASE("a host that leaves may take the job below its minimum, which names the host") {
  RecordedJob job([] {
    GenerationLimits limits;
    limits.least = 3;
    return limits;
  }());
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  job.generations.host_leaves(job.hosts.host(0), "its agent got signal 15", 30, job.now());
  job.ask({0, 1, 2, 3});
  CHECK(job.exit_code == 1);
  CHECK(job.end ==
        "host a leaves the job: its agent got signal 15; the job needs at least 3 ranks "
        "(--min-np), and has 2");
}

TEST_CASE("the only host with the state goes on until its agent ends") {
  RecordedJob job;
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  job.generations.host_leaves(job.hosts.host(0), "its agent got signal 15", 30, job.now());
  REQUIRE(job.said.size() == 1);
  CHECK(job.said[0].find("no other host has the training state") != std::string::npos);
  CHECK(job.updates.empty());
  CHECK_FALSE(job.exit_code);
}

TEST_CASE("the only host with the state leaves once another host has got the state") {
  RecordedJob job;
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  job.generations.host_leaves(job.hosts.host(0), "its agent got signal 15", 30, job.now());
  job.generations.discovered(kTwoHosts, job.now());
  job.generations.prepared(job.hosts.host(1), job.now());
  job.wait(10);
  job.ask({2, 3});
  CHECK(job.updates == std::vector<std::string>{"0:2"});
  CHECK(job.said.size() == 1);
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1 2+ 3+");
  job.wait(1);
  CHECK(job.said.back() ==
        "host a leaves the job: its agent got signal 15; its ranks have 20 s for their next commit "
        "(--leave-grace)");
  CHECK(job.updates.back() == "1:1");
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "2 3");
  CHECK(job.ended == std::vector<int>{0});
  CHECK(job.losses.empty());
  job.wait(100);
  CHECK_FALSE(job.exit_code);
}

}  // namespace
}  // namespace hvd::launcher
