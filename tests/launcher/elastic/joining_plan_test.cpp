// Processes that join ranks during training: provisional places, void plans, and time limits.
#include <doctest/doctest.h>

#include "base/text.h"
#include "tests/launcher/elastic/recorded_job.h"

namespace hvd::launcher {
namespace {

// A job of two ranks on host a. The processes 2 and 3 of host b have provisional places.
void prepare_two(RecordedJob& job) {
  job.enters_at_once = false;
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  job.generations.takes_part(job.now());
  job.generations.discovered(kTwoHosts, job.now());
  job.ask({2, 3});
  CHECK(job.provisional == std::map<int, std::string>{{2, "2/4"}, {3, "3/4"}});
  CHECK(job.updates.empty());
  job.said.clear();
}

TEST_CASE("ranks are interrupted when all new processes of the plan have entered elastic.run") {
  RecordedJob job(of_script());
  prepare_two(job);
  job.enter(2);
  job.wait(20);
  CHECK(job.updates.empty());
  job.enter(3, rendezvous::PlaceRequestFrom::kCollective);
  CHECK(job.updates == std::vector<std::string>{"0:2"});
  CHECK(job.places.count(2) == 0);
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1 2+ 3+");
  CHECK(job.places.at(2) == 1);
  CHECK(job.ended.empty());
}

TEST_CASE("ranks that do not commit are named each minute while others wait for them") {
  RecordedJob job(of_script());
  prepare_two(job);
  job.enter(2);
  job.wait(1);
  job.enter(3);
  job.wait(59);
  CHECK(job.said.empty());
  job.wait(1);
  job.wait(60);
  CHECK(
      job.said ==
      std::vector<std::string>{
          "the next generation has waited 60 s for a commit of the ranks (new ranks are ready)",
          "the next generation has waited 120 s for a commit of the ranks (new ranks are ready)"});
  job.ask({0});
  job.said.clear();
  job.wait(4);
  CHECK(job.said.empty());
}

TEST_CASE("a process that comes while others have provisional places waits for the next plan") {
  RecordedJob job(of_script());
  prepare_two(job);
  job.generations.discovered({kTwoHosts[0], kTwoHosts[1], {"c", "", 1}}, job.now());
  job.ask({4});
  job.wait(2);
  CHECK(job.provisional.size() == 2);
  job.enter(2);
  job.enter(3);
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1 2+ 3+");
  CHECK(job.provisional.at(4) == "4/5");
}

TEST_CASE(
    "a new process that does not enter elastic.run is named and given up, and ranks train on") {
  RecordedJob job(of_script());
  prepare_two(job);
  job.wait(2);
  job.enter(2);
  job.wait(3);
  CHECK(job.said == std::vector<std::string>{
                        "the next generation waits for process 3 on host b, which is new, to enter "
                        "hvd.elastic.run, up to 30 s after its hvd.init (--start-timeout)"});
  job.wait(24);
  CHECK(job.ended.empty());
  job.wait(1);
  REQUIRE(job.said.size() >= 2);
  CHECK(job.said[1].starts_with(
      "process 3 on host b has not entered hvd.elastic.run, nor called a collective, within 30 s "
      "of its hvd.init (--start-timeout)"));
  CHECK(job.losses.empty());
  CHECK(job.record.number == 0);
  CHECK_FALSE(job.exit_code);
}

TEST_CASE("a plan whose process fails is void: one in elastic.run takes another place") {
  RecordedJob job(of_script());
  prepare_two(job);
  SUBCASE("which has entered elastic.run") {
    job.enter(2);
    job.generations.ended(3, 1, "process 3 on host b exited with code 1", job.now());
    CHECK(job.ended == std::vector<int>{1});  // ends the host, which has no rank
  }
  SUBCASE("on a host with ranks") {
    job.enter(2);
    job.enter(3);
    job.ask({0, 1});
    job.generations.discovered({{"a", "", 2}, {"b", "", 4}}, job.now());
    job.ask({4, 5});
    CHECK(job.provisional.at(5) == "5/6");
    job.enter(5);
    job.generations.ended(4, 1, "process 4 on host b exited with code 1", job.now());
    CHECK(job.ended.empty());
    CHECK(job.ended_processes.empty());
    job.ask({0, 1, 2, 3});
    CHECK(job.ranks() == "0 1 2 3 5+");
  }
  SUBCASE("the other one is in its program") {
    job.enter(2);
    job.enter(3);
    job.ask({0, 1});
    job.generations.discovered({{"a", "", 2}, {"b", "", 4}}, job.now());
    job.ask({4, 5});
    SUBCASE("before a collective") {}
    SUBCASE("in a collective") { job.enter(5, rendezvous::PlaceRequestFrom::kCollective); }
    const size_t starts = job.started.size();
    job.generations.ended(4, 1, "process 4 on host b exited with code 1", job.now());
    CHECK(job.ended == std::vector<int>{2});  // the agent of host 2 has no other process
    CHECK(job.said.back() ==
          "process 5 on host b is ended, because the place that hvd.init gave it has changed; "
          "another process starts");
    job.wait(5);
    CHECK(job.started.size() == starts + 1);
    CHECK(job.updates == std::vector<std::string>{"0:2"});
  }
  CHECK(job.losses.empty());
  CHECK_FALSE(job.exit_code);
}

TEST_CASE("a failed rank makes the plan void, and the others begin at once") {
  GenerationLimits limits = of_script();
  limits.restarts_ranks = true;
  RecordedJob job(limits);
  prepare_two(job);
  SUBCASE("a new process that is in elastic.run stays") {
    job.enter(2);
    job.enter(3);
  }
  SUBCASE("one that is not starts again") { job.enter(2); }
  const bool is_prepared = !job.updates.empty();
  job.generations.ended(1, 137, "rank 1 on host a was killed", job.now());
  CHECK(job.ended_processes == (is_prepared ? std::vector<int>{} : std::vector<int>{3}));
  job.ask({0});
  CHECK(job.ranks() == (is_prepared ? "0 2+ 3+" : "0 2+"));
}

TEST_CASE("an error of ranks that all live on leaves the plan as it is") {
  RecordedJob job(of_script());
  prepare_two(job);
  job.enter(2);
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1");
  CHECK(job.record.number == 1);
  job.enter(3, rendezvous::PlaceRequestFrom::kCollective);
  CHECK(job.updates == std::vector<std::string>{"1:2"});
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1 2+ 3+");
  CHECK(job.ended_processes.empty());
}

TEST_CASE("a new process on a host without ranks that fails takes the others there with it") {
  RecordedJob job(of_script());
  prepare_two(job);
  job.wait(30);
  CHECK(job.ended == std::vector<int>{1});
  CHECK(job.losses.empty());
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1");
}

TEST_CASE("a new process may take as long to elastic.run as the first ranks, and --start-timeout") {
  RecordedJob job(of_script());
  job.enters_at_once = false;
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  job.wait(90);
  job.generations.takes_part(job.now());
  job.generations.discovered(kTwoHosts, job.now());
  job.ask({2, 3});
  job.said.clear();
  job.wait(5);
  CHECK(job.said.size() == 1);
  job.wait(59);
  CHECK(job.said.size() == 1);
  job.wait(1);
  CHECK(job.said.size() == 2);
  job.wait(54);
  CHECK(job.ended.empty());
  job.wait(1);
  CHECK(job.ended == std::vector<int>{1});
  CHECK(job.said.back().find("within 120 s of its hvd.init") != std::string::npos);
}

TEST_CASE("with --restart-ranks a new process that does not enter elastic.run ends alone") {
  GenerationLimits limits = of_script();
  limits.restarts_ranks = true;
  RecordedJob job(limits);
  prepare_two(job);
  job.enter(2);
  job.wait(30);
  CHECK(job.ended_processes == std::vector<int>{3});
  CHECK(job.ended.empty());
}

TEST_CASE("a process that leaves Horovod and begins again gets the same place") {
  RecordedJob job(of_script());
  prepare_two(job);
  job.provisional.clear();
  job.ask({3});
  CHECK(job.provisional == std::map<int, std::string>{{3, "3/4"}});
}

TEST_CASE("below the minimum the ranks wait for a new process to enter elastic.run") {
  RecordedJob job(of_script(2));
  job.enters_at_once = false;
  job.begin({{"a", "", 1}, {"b", "", 1}});
  job.ask({0, 1});
  job.generations.takes_part(job.now());
  job.generations.ended(1, 137, "rank 1 on host b was killed", job.now());
  job.ask({0});
  job.generations.discovered({{"a", "", 1}, {"c", "", 1}}, job.now());
  job.ask({2});
  CHECK(job.provisional.at(2) == "1/2");
  CHECK(job.record.number == 0);
  job.enter(2);
  CHECK(job.ranks() == "0 2+");
}

}  // namespace
}  // namespace hvd::launcher
