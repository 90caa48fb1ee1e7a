// Processes that miss a deadline while other processes wait for them.
#include "launcher/elastic/deadlines.h"

#include <doctest/doctest.h>

#include "tests/launcher/elastic/recorded_job.h"

namespace hvd::launcher {
namespace {

TEST_CASE("a loss that no rank has noticed is named each minute") {
  TrainingJob job(of_script());
  job.generations.takes_part(job.now());
  CHECK(job.generations.ended(0, 134, "rank 0 on host a was killed", job.now()));
  job.said.clear();
  job.wait(59);
  CHECK(job.said.empty());
  job.wait(1);
  job.wait(60);
  REQUIRE(job.said.size() == 2);
  CHECK(job.said[0] == job.said[1]);
  CHECK(job.said[0] ==
        "the next generation waits until rank 2 on host b, rank 3 on host b call Horovod and "
        "notice that rank 0 on host a was killed");
  job.ask({2, 3});
  CHECK(job.ranks() == "2 3");
  job.said.clear();
  job.wait(60);
  CHECK(job.said.empty());
}

TEST_CASE("a job whose ranks never notice a loss ends after --elastic-timeout") {
  TrainingJob job(of_script());
  job.generations.ended(2, 137, "rank 2 on host b was killed", job.now());
  for (int minute = 0; minute < 9; ++minute) job.wait(60);
  CHECK_FALSE(job.exit_code);
  job.wait(59);
  CHECK_FALSE(job.exit_code);
  job.wait(1);
  CHECK(job.exit_code == 137);
  CHECK(
      job.end ==
      "rank 2 on host b was killed; rank 0 on host a, rank 1 on host a have not called "
      "Horovod within 600 s of that (--elastic-timeout); horovodrun stack shows where these ranks "
      "are");
}

TEST_CASE("a new process that ends without having been a rank is started again later each time") {
  RecordedJob job(of_script());
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  job.generations.discovered({kTwoHosts[0], {"b", "", 1}}, job.now());
  REQUIRE(job.started.size() == 1);
  CHECK(job.generations.ended(2, 0, "", job.now()));
  REQUIRE_FALSE(job.said.empty());
  CHECK(job.said.back() ==
        "process 2 on host b exited with code 0 before it was a rank; the job goes on without it, "
        "and starts another process there in 5 s");
  job.wait(4);
  CHECK(job.started.size() == 1);
  job.wait(1);
  CHECK(job.started.size() == 2);
  CHECK(job.generations.ended(3, 0, "", job.now()));
  job.wait(9);
  CHECK(job.started.size() == 2);
  job.wait(1);
  CHECK(job.started.size() == 3);
}

TEST_CASE("a new process that never asks for a place is given up and started again later") {
  RecordedJob job(of_script());
  job.begin({kTwoHosts[0]});
  job.wait(50);  // the first ranks need as long for their imports
  job.ask({0, 1});
  job.generations.discovered(kTwoHosts, job.now());
  job.wait(100);  // the agent of host b starts
  job.generations.prepared(job.hosts.host(1), job.now());
  job.ask({2});
  job.wait(59);
  CHECK(job.said.empty());
  job.wait(1);
  REQUIRE(job.said.size() == 1);
  CHECK(job.said[0] ==
        "process 3 on host b has not called hvd.init within 60 s of its start; it will be ended "
        "after "
        "80 s");
  job.wait(19);
  CHECK(job.ended_processes.empty());
  job.wait(1);
  CHECK(job.ended_processes == std::vector<int>{3});
  REQUIRE(job.said.size() == 2);
  CHECK(job.said[1] ==
        "process 3 on host b has not called hvd.init within 80 s of its start, 30 s more than the "
        "first ranks needed (--start-timeout); the job goes on without it, and starts another "
        "process "
        "there in 5 s");
  CHECK(job.losses.empty());
  job.wait(5);
  CHECK(job.started == std::vector<std::string>{"b:2", "b:1"});
}

TEST_CASE("the ranks that the job begins with have --init-timeout to call hvd.init") {
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2});
  job.wait(5);
  CHECK(job.said == std::vector<std::string>{
                        "the first generation waits for process 3 on host b, up to 600 s"});
  job.wait(594);
  CHECK(job.ended.empty());
  job.wait(1);
  CHECK(job.ended == std::vector<int>{1});
  CHECK(job.said.back().starts_with(
      "process 3 on host b has not called hvd.init within 600 s of the others (--init-timeout); "));
}

TEST_CASE("a process that is started anew before the first generation has its time as well") {
  RecordedJob job([] {
    GenerationLimits limits;
    limits.least = 2;
    limits.init_seconds = 30;
    return limits;
  }());
  job.begin({kTwoHosts[0]});
  job.ask({0});
  job.wait(5);
  job.wait(25);
  CHECK(job.ended_processes == std::vector<int>{1});
  job.wait(1);
  REQUIRE(job.started == std::vector<std::string>{"a:1"});
  job.generations.prepared(job.hosts.host(1), job.now());
  job.wait(29);
  CHECK(job.ended_processes.size() == 1);
  job.ask({2});
  CHECK(job.ranks() == "0+ 2+");
}

TEST_CASE("ranks that the job begins with may take long to enter elastic.run") {
  TrainingJob job(of_script());
  job.generations.takes_part(job.now());
  job.said.clear();
  job.wait(100);
  CHECK(job.said.empty());
  CHECK(job.ended_processes.empty());
}

TEST_CASE("a program whose ranks never enter elastic.run has no such limit") {
  RecordedJob job(of_script());
  job.begin({kTwoHosts[0]});
  job.enters_at_once = false;
  job.ask({0, 1});
  job.generations.discovered(kTwoHosts, job.now());
  job.ask({2, 3});
  job.wait(100);
  CHECK(job.provisional.size() == 2);
  CHECK(job.ended.empty());
}

TEST_CASE("a rank that does not come back is named, and then given up") {
  TrainingJob job;
  job.ask({0, 1, 2});
  job.wait(5);
  REQUIRE_FALSE(job.said.empty());
  CHECK(job.said.back().find("rank 3 on host b") != std::string::npos);
  job.wait(25);
  CHECK(job.ended == std::vector<int>{1});
  CHECK(job.ranks() == "0 1");
}

TEST_CASE("on a single host a silent rank is given up and started again, and the others go on") {
  RecordedJob job;
  job.begin({{"a", "", 3}});
  job.ask({0, 1, 2});
  job.ask({0, 1});
  job.wait(5);
  job.wait(25);
  CHECK(job.ended.empty());
  CHECK(job.ended_processes == std::vector<int>{2});
  CHECK(job.ranks() == "0 1");
  CHECK_FALSE(job.exit_code);
  job.wait(1.1);
  CHECK(job.started == std::vector<std::string>{"a:1"});
  job.ask({3});
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1 3+");
}

}  // namespace
}  // namespace hvd::launcher
