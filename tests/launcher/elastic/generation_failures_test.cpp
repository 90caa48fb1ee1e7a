// Failures of ranks, hosts and new processes in a job, and the reset limit.
#include <doctest/doctest.h>

#include "launcher/elastic/generations.h"
#include "tests/launcher/elastic/recorded_job.h"

namespace hvd::launcher {
namespace {

TEST_CASE("a failed rank takes its host out, and the next generation has the others") {
  TrainingJob job;
  CHECK(job.generations.ended(1, 137, "rank 1 was killed", job.now()));
  CHECK(job.ended == std::vector<int>{0});
  REQUIRE(job.losses.size() == 1);
  CHECK(job.losses[0] == "0: rank 1 was killed");
  job.ask({2});
  CHECK(job.record.number == 0);
  job.ask({3});
  CHECK(job.record.number == 1);
  CHECK(job.ranks() == "2 3");
  CHECK_FALSE(job.record.has_new_members());
  CHECK(job.generations.ended(0, 143, "ended by us", job.now()));
  CHECK_FALSE(job.exit_code);
}

TEST_CASE("a failure on each of the hosts ends the job with the first one") {
  TrainingJob job;
  job.generations.ended(1, 7, "rank 1 exited with code 7", job.now());
  CHECK_FALSE(job.exit_code);
  job.generations.ended(2, 9, "rank 2 exited with code 9", job.now());
  CHECK(job.exit_code == 7);
  CHECK(job.end.find("rank 1 exited with code 7") != std::string::npos);
}

TEST_CASE("a rank that exits with 0 inside hvd.elastic.run has failed, and the others go on") {
  TrainingJob job;
  for (const int process : {0, 1, 2, 3}) job.generations.runs(process, ElasticCall::kInside);
  CHECK(job.generations.ended(1, 0, "", job.now()));
  CHECK(job.ended == std::vector<int>{0});
  CHECK(
      job.losses ==
      std::vector<std::string>{
          "0: rank 1 on host a exited with code 0 before it reported the end of hvd.elastic.run"});
  CHECK(job.said.front().starts_with(
      "rank 1 on host a exited with code 0 before it reported the end of hvd.elastic.run; "));
  job.ask({2, 3});
  CHECK(job.ranks() == "2 3");
  job.generations.runs(2, ElasticCall::kReturned);
  CHECK(job.generations.ended(2, 0, "", job.now()));
  CHECK_FALSE(job.exit_code);
  SUBCASE("the last one too") {
    job.generations.runs(3, ElasticCall::kReturned);
    CHECK(job.generations.ended(3, 0, "", job.now()));
    CHECK_FALSE(job.exit_code);
  }
  SUBCASE("while another has done its work, it does not fail the job") {
    CHECK(job.generations.ended(3, 0, "", job.now()));
    CHECK_FALSE(job.exit_code);
  }
}

TEST_CASE("a job whose ranks all exit with 0 inside hvd.elastic.run ends with code 1") {
  RecordedJob job;
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  for (const int process : {0, 1}) job.generations.runs(process, ElasticCall::kInside);
  CHECK(job.generations.ended(0, 0, "", job.now()));
  CHECK(job.generations.ended(1, 0, "", job.now()));
  CHECK(job.exit_code == 1);
}

TEST_CASE(
    "ranks that ask for another generation after one has ended its work are named, and the job "
    "fails") {
  TrainingJob job;
  for (const int process : {0, 1, 2, 3}) job.generations.runs(process, ElasticCall::kInside);
  for (const int process : {1, 3}) job.generations.runs(process, ElasticCall::kReturned);
  CHECK(job.generations.ended(1, 0, "", job.now()));
  CHECK_FALSE(job.exit_code);
  job.ask({0, 2});
  CHECK_FALSE(job.exit_code);  // rank 3 may save
  CHECK(job.ended == std::vector<int>{0});
  CHECK(job.ended_processes == std::vector<int>{2});
  CHECK(job.generations.ended(3, 0, "", job.now()));
  CHECK(job.exit_code == 1);
  CHECK(job.end ==
        "rank 1 on host a exited with code 0, but rank 0 on host a, rank 2 on host b have not "
        "finished "
        "training; the remaining ranks ask for another generation, which cannot begin after a rank "
        "has "
        "finished");
}

// Runs a job of three ranks on three hosts; `returned`: ranks that returned from hvd.elastic.run.
void train(RecordedJob& job, std::initializer_list<int> returned) {
  job.begin({{"a", "", 1}, {"b", "", 1}, {"c", "", 1}});
  job.ask({0, 1, 2});
  job.generations.takes_part(job.now());
  for (const int process : {0, 1, 2}) job.generations.runs(process, ElasticCall::kInside);
  for (const int process : returned) job.generations.runs(process, ElasticCall::kReturned);
}

TEST_CASE("a rank that an exception has led out of hvd.elastic.run has failed in training") {
  for (const int exit_code : {0, 1}) {
    CAPTURE(exit_code);
    RecordedJob job;
    train(job, {});
    job.generations.runs(2, ElasticCall::kRaised);
    CHECK(job.generations.ended(2, exit_code, "rank 2 on host c exited", job.now()));
    CHECK(job.losses.empty() == (exit_code == 0));
    CHECK_FALSE(job.exit_code);
  }
}

TEST_CASE("a failure after training ends no other rank, and is the job's when all have ended") {
  for (const bool is_first : {true, false}) {
    CAPTURE(is_first);
    RecordedJob job;
    train(job, {0, 1, 2});
    if (!is_first) job.generations.ended(1, 0, "", job.now());
    CHECK(job.generations.ended(2, 139, "rank 2 on host c was killed by SIGSEGV", job.now()));
    if (is_first) job.generations.ended(1, 0, "", job.now());
    job.wait(59);
    CHECK_FALSE(job.exit_code);
    CHECK(job.started.empty());
    CHECK((job.losses.empty() && std::ranges::find(job.ended, 0) == job.ended.end()));
    CHECK(job.said == std::vector<std::string>{"rank 2 on host c was killed by SIGSEGV after "
                                               "training; the other ranks go on"});
    job.wait(1);
    CHECK(job.said.back() == "training is over, and the job waits for rank 0 on host a");
    CHECK(job.generations.ended(0, 0, "", job.now()));
    CHECK(job.exit_code == 139);
    CHECK(
        job.end ==
        "training was over; rank 1 on host b, rank 0 on host a exited with code 0; rank 2 on host "
        "c was killed by SIGSEGV after it");
  }
}

TEST_CASE("a host that is lost after training ends no other rank, and fails the job at the end") {
  RecordedJob job;
  train(job, {0, 1, 2});
  CHECK_FALSE(job.generations.can_spare({"c"}));
  CHECK(job.generations.host_lost(job.hosts.host(2), "host c was lost: it burns", job.now()));
  CHECK(job.generations.ended(1, 0, "", job.now()));
  CHECK(job.generations.ended(0, 0, "", job.now()));
  CHECK(job.exit_code == 1);
  CHECK(
      job.end ==
      "training was over; rank 1 on host b, rank 0 on host a exited with code 0; host c was lost: "
      "it burns after it");
}

TEST_CASE("a failure in training does not fail the job if another rank finishes") {
  RecordedJob job;
  SUBCASE("while others have returned") {
    train(job, {0, 1});
    CHECK(job.generations.ended(2, 1, "rank 2 on host c failed", job.now()));
    CHECK(job.generations.ended(0, 0, "", job.now()));
  }
  SUBCASE("after another has ended") {
    train(job, {0, 1});
    CHECK(job.generations.ended(0, 0, "", job.now()));
    CHECK(job.generations.ended(2, 1, "rank 2 on host c failed", job.now()));
  }
  SUBCASE("and a rank that then asks for another generation is ended") {
    train(job, {0});
    CHECK(job.generations.ended(0, 0, "", job.now()));
    CHECK(job.generations.ended(2, 1, "rank 2 on host c failed", job.now()));
    job.ask({1});
    CHECK(job.ended == std::vector<int>{1});
    CHECK_FALSE(job.exit_code);
    return;
  }
  CHECK((job.losses.empty() && job.started.empty()));
  CHECK(job.said.back() == "rank 2 on host c failed at the end of training; the other ranks go on");
  CHECK(job.generations.ended(1, 0, "", job.now()));
  CHECK_FALSE(job.exit_code);
}

TEST_CASE("a program that trains twice goes on after a failure between its trainings") {
  RecordedJob job;
  train(job, {0, 1, 2});
  CHECK(job.generations.ended(2, 1, "rank 2 on host c failed", job.now()));
  for (const int process : {0, 1}) job.generations.runs(process, ElasticCall::kInside);
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1");
  for (const int process : {0, 1}) job.generations.runs(process, ElasticCall::kReturned);
  CHECK(job.generations.ended(0, 0, "", job.now()));
  CHECK(job.generations.ended(1, 0, "", job.now()));
  CHECK_FALSE(job.exit_code);
}

TEST_CASE("a silent host is used again when its ranks have ended, and is excluded by no silence") {
  RecordedJob job;
  job.begin({{"a", "", 1}, {"b", "", 1}});
  job.ask({0, 1});
  CHECK(job.generations.can_spare({"b"}));
  CHECK_FALSE(job.generations.can_spare({"a", "b"}));
  job.hosts.host(1).may_run_until(job.now() + std::chrono::seconds(44));
  job.generations.host_lost(job.hosts.host(1), "host b was lost: the host did not answer for 3 s",
                            job.now());
  CHECK(job.said.back() ==
        "host b was lost: the host did not answer for 3 s; host b is used again when its agent "
        "confirms the end of its ranks, or in 44 s");
  job.ask({0});
  CHECK(job.ranks() == "0");
  job.wait(43);
  CHECK(job.started.empty());
  SUBCASE("its agent confirms it") { job.generations.ranks_ended(job.hosts.host(1), job.now()); }
  SUBCASE("or the lease is over") { job.wait(1); }
  CHECK(job.started == std::vector<std::string>{"b:1"});
}

TEST_CASE("a new host that fails costs the ranks nothing, and is tried again") {
  RecordedJob job(of_script());
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  job.generations.discovered(kTwoHosts, job.now());
  job.generations.start_failed(job.hosts.host(1), "host b: connect: refused", job.now());
  CHECK(job.updates.empty());
  CHECK(job.losses.empty());
  job.wait(4);
  CHECK(job.started.size() == 1);
  job.wait(1);
  CHECK(job.started == std::vector<std::string>{"b:2", "b:2"});
}

TEST_CASE("a new process that fails costs the ranks of its host nothing") {
  TrainingJob job(of_script());
  job.generations.discovered({kTwoHosts[0], {"b", "", 3}}, job.now());
  CHECK(job.started == std::vector<std::string>{"b:1"});
  CHECK(job.generations.ended(4, 1, "process 4 on host b exited with code 1", job.now()));
  CHECK(job.said.back() ==
        "process 4 on host b exited with code 1; the job goes on without it, and starts another "
        "process there in 5 s");
  CHECK(job.losses.empty());
  CHECK(job.ended.empty());
  job.wait(4);
  CHECK(job.started.size() == 1);
  job.wait(1);
  CHECK(job.started == std::vector<std::string>{"b:1", "b:1"});
  CHECK(job.generations.ended(5, 1, "process 5 on host b exited with code 1", job.now()));
  CHECK(job.said.back().find("in 10 s") != std::string::npos);
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "0 1 2 3");
}

TEST_CASE(
    "without a script, and with all other hosts listed for ever, there is nothing to wait for") {
  RecordedJob job({.least = 2});
  job.begin({{"a", "", 1}, {"b", "", 1}});
  job.ask({0, 1});
  job.generations.ended(1, 7, "rank 1 exited with code 7", job.now());
  job.ask({0});
  CHECK(job.exit_code == 7);
  CHECK(job.end.find("--min-np") != std::string::npos);
}

TEST_CASE("a host that has cooled down is started anew") {
  RecordedJob job({}, CooldownRange{10, 100});
  job.begin({{"a", "", 1}, {"b", "", 1}});
  job.ask({0, 1});
  job.generations.ended(1, 1, "rank 1 failed", job.now());
  job.ask({0});
  CHECK(job.ranks() == "0");
  job.wait(19);
  CHECK(job.started.empty());
  job.wait(1.1);
  CHECK(job.started == std::vector<std::string>{"b:1"});
}

TEST_CASE("on a single host a failed rank is started again") {
  RecordedJob job;
  job.begin({{"a", "", 3}});
  job.ask({0, 1, 2});
  job.generations.ended(1, 137, "rank 1 was killed", job.now());
  CHECK(job.ended.empty());
  job.ask({0, 2});
  CHECK(job.ranks() == "0 2");
  job.wait(1.1);
  CHECK(job.started == std::vector<std::string>{"a:1"});
  job.ask({3});
  job.ask({0, 2});
  CHECK(job.record.members.size() == 3);
}

TEST_CASE("when all ranks fail, the first failure is the job's") {
  TrainingJob job;
  job.generations.ended(3, 9, "rank 3 exited with code 9", job.now());
  job.generations.ended(0, 1, "rank 0 exited with code 1", job.now());
  CHECK(job.exit_code == 9);
  CHECK(job.end == "rank 3 exited with code 9");
}

TEST_CASE("the failure of a new process is not the cause of the job's end") {
  RecordedJob job(of_script());
  job.begin({{"a", "", 1}});
  job.ask({0});
  job.generations.discovered({{"a", "", 1}, {"b", "", 1}, {"c", "", 1}}, job.now());
  REQUIRE(job.started.size() == 2);
  job.generations.ended(1, 3, "process 1 on host b exited with code 3", job.now());
  job.generations.host_lost(job.hosts.host(2), "host c was lost", job.now());
  CHECK_FALSE(job.exit_code);
  job.generations.ended(0, 9, "rank 0 on host a exited with code 9", job.now());
  CHECK(job.exit_code == 9);
  CHECK(job.end == "rank 0 on host a exited with code 9");
}

TEST_CASE("the limit of resets counts every change") {
  GenerationLimits limits = of_script();
  limits.resets = ResetLimit{.resets = 1, .seconds = {}};
  RecordedJob job(limits);
  job.begin({{"a", "", 1}});
  job.ask({0});
  job.generations.discovered({{"a", "", 1}, {"b", "", 1}}, job.now());
  job.ask({1});
  job.ask({0});
  CHECK(job.record.number == 1);
  job.generations.ended(1, 1, "rank 1 failed", job.now());
  job.ask({0});
  CHECK(job.exit_code == 1);
  CHECK(job.end.find("--reset-limit") != std::string::npos);
}

TEST_CASE("the sentence of the reset limit has the latest resets and their causes") {
  GenerationLimits limits = of_script();
  limits.resets = ResetLimit{.resets = 3, .seconds = {}};
  RecordedJob job(limits);
  job.begin({{"a", "", 1}});
  job.ask({0});
  job.generations.discovered({{"a", "", 1}, {"b", "", 1}}, job.now());
  job.ask({1});
  job.ask({0});
  job.generations.ended(1, 1, "rank 1 on host b failed", job.now());
  job.ask({0});
  job.ask({0});
  CHECK(job.record.number == 3);
  job.ask({0});
  CHECK(job.exit_code == 1);
  CHECK(job.end ==
        "the ranks of the job have changed 3 times, and may not change again (--reset-limit); "
        "generation 1: new ranks were ready; generation 2: rank 1 on host b failed; generation 3: "
        "the ranks asked for it after an error");
}

TEST_CASE("a limit of resets within a time forgets old ones") {
  RecordedJob job({.resets = ResetLimit{.resets = 1, .seconds = 60}});
  job.begin({{"a", "", 2}});
  job.ask({0, 1});
  job.ask({0, 1});
  CHECK(job.record.number == 1);
  job.wait(61);
  job.ask({0, 1});
  CHECK(job.record.number == 2);
  job.ask({0, 1});
  CHECK(job.exit_code == 1);
}

TEST_CASE("with --restart-ranks a failed rank is started again on its host") {
  TrainingJob job({.restarts_ranks = true});
  SUBCASE("after its failure") {
    job.generations.ended(2, 137, "rank 2 was killed", job.now());
    CHECK(job.said.back() == "rank 2 was killed; it is started again in 1 s");
    CHECK(job.ended_processes.empty());
    job.ask({0, 1, 3});
  }
  SUBCASE("after its silence") {
    job.ask({0, 1, 3});
    job.wait(5);
    job.wait(25);
    CHECK(job.ended_processes == std::vector<int>{2});
  }
  SUBCASE("after its silence, when it is the last one there") {
    job.generations.ended(3, 137, "rank 3 was killed", job.now());
    job.ask({0, 1});
    job.wait(5);
    job.wait(25);
    CHECK(job.ended == std::vector<int>{1});
    CHECK(job.ranks() == "0 1");
    return;
  }
  CHECK(job.ended.empty());
  CHECK(job.ranks() == "0 1 3");
  job.wait(1.1);
  CHECK(job.started == std::vector<std::string>{"b:1"});
  job.ask({4});
  job.ask({0, 1, 3});
  CHECK(job.ranks() == "0 1 3 4+");
}

// Requests of processes that have committed `commits` times in this generation.
void ask_uncommitted(RecordedJob& job, std::initializer_list<int> who, int32_t commits = 0) {
  for (const int process : who) {
    job.generations.requested(process,
                              {.number = ++job.requests[process],
                               .generation = job.places.at(process),
                               .commits = commits},
                              job.now());
  }
}

TEST_CASE(
    "with --restart-ranks the wait grows from failure to failure, until the job makes progress") {
  TrainingJob job({.restarts_ranks = true});
  job.generations.ended(2, 137, "rank 2 was killed", job.now());
  job.ask({0, 1, 3});
  job.generations.ended(3, 137, "rank 2 was killed", job.now());
  CHECK(job.said.back() == "rank 2 was killed; it is started again in 2 s");
  ask_uncommitted(job, {0, 1}, 100);
  job.wait(2.1);
  REQUIRE(job.started == std::vector<std::string>{"b:2"});
  job.ask({4, 5});
  job.ask({0, 1, 4, 5});
  job.generations.ended(4, 137, "rank 2 was killed", job.now());
  CHECK(job.said.back() == "rank 2 was killed; it is started again in 1 s");
}

TEST_CASE(
    "a job that loses the last rank with its state says so, where it would start ranks again") {
  RecordedJob job({.restarts_ranks = true});
  job.begin({{"a", "", 2}});
  job.ask({0, 1});
  job.generations.ended(1, 137, "rank 1 was killed", job.now());
  job.generations.ended(0, 137, "rank 0 was killed", job.now());
  CHECK(job.exit_code == 137);
  CHECK(job.end ==
        "rank 1 was killed; no remaining rank has the training state: start the job again from its "
        "checkpoint");
}

TEST_CASE("the same exception on a second host with no commit between ends the job") {
  RecordedJob job;
  job.begin({{"a", "", 2}, {"b", "", 1}, {"c", "", 1}, {"d", "", 1}});
  job.ask({0, 1, 2, 3, 4});
  const std::string error = "ValueError: sample 7 is empty";
  job.generations.ended(2, 1, "rank 2 on host b exited with code 1", job.now(), error);
  job.ask({0, 1, 3, 4});
  CHECK(job.ranks() == "0 1 3 4");
  SUBCASE("it follows the program") {
    job.generations.ended(3, 1, "rank 2 on host c exited with code 1", job.now(), error);
    CHECK_FALSE(job.exit_code);
    ask_uncommitted(job, {0, 1, 4});
    CHECK(job.exit_code == 1);
    CHECK(job.end ==
          "rank 2 on host c exited with code 1; rank 2 on host b had failed with the same "
          "exception (ValueError: sample 7 is empty) in generation 0, and no rank has committed "
          "since: the program or its data is the cause, not a host");
    return;
  }
  SUBCASE("the second failure is another one") {
    job.generations.ended(3, 1, "rank 2 on host c exited with code 1", job.now(), "OSError: gone");
    ask_uncommitted(job, {0, 1, 4});
  }
  SUBCASE("a rank has committed between") {
    job.generations.ended(3, 1, "rank 2 on host c exited with code 1", job.now(), error);
    ask_uncommitted(job, {0, 1});
    job.ask({4});
    CHECK(job.record.number == 2);
    // Failures before a commit count only once a third host has failed in the same way.
    job.generations.ended(4, 1, "rank 2 on host d exited with code 1", job.now(), error);
    job.ask({0, 1});
    CHECK(job.exit_code == 1);
    CHECK(job.end ==
          "rank 2 on host d exited with code 1; rank 2 on host b and rank 2 on host c had failed "
          "with the "
          "same exception (ValueError: sample 7 is empty) in generations 0 and 1: the program or "
          "its data "
          "is the cause, not a host");
    return;
  }
  SUBCASE("the ranks have committed a few times between") {
    job.generations.ended(3, 1, "rank 2 on host c exited with code 1", job.now(), error);
    ask_uncommitted(job, {0}, 2);
    ask_uncommitted(job, {1, 4}, 3);
    CHECK(job.exit_code == 1);
    CHECK(job.end ==
          "rank 2 on host c exited with code 1; rank 2 on host b had failed with the same "
          "exception (ValueError: sample 7 is empty) in generation 0, and the ranks have committed "
          "3 times since: the program or its data is the cause, not a host");
    return;
  }
  SUBCASE("it has no exception") {
    job.generations.ended(3, 1, "rank 2 on host c exited with code 1", job.now());
    ask_uncommitted(job, {0, 1, 4});
  }
  SUBCASE("Horovod raised it") {
    const std::string ours = "horovod.exceptions.HorovodInternalError: rank 1 was lost";
    job.generations.ended(3, 1, "rank 2 on host c exited with code 1", job.now(), ours);
    ask_uncommitted(job, {0, 1, 4});
    job.generations.ended(4, 1, "rank 2 on host d exited with code 1", job.now(), ours);
    ask_uncommitted(job, {0, 1});
    CHECK(job.record.number == 3);
    return;
  }
  CHECK(job.record.number == 2);
  CHECK_FALSE(job.exit_code);
}

TEST_CASE(
    "the same exception of a rank that was started again with no commit between ends the job") {
  RecordedJob job({.least = 2});
  job.begin({{"a", "", 2}});
  job.ask({0, 1});
  const std::string error = "ValueError: sample 7 is empty";
  job.generations.ended(1, 1, "rank 1 on host a exited with code 1", job.now(), error);
  job.ask({0});
  job.wait(1);
  job.ask({2});
  CHECK(job.ranks() == "0 2+");
  job.generations.ended(2, 1, "rank 1 on host a exited with code 1", job.now(), error);
  ask_uncommitted(job, {0});
  CHECK(job.exit_code == 1);
  CHECK(job.end.find("the program or its data is the cause") != std::string::npos);
}

TEST_CASE("the ranks learn of a lost host and the cause") {
  TrainingJob job;
  job.generations.host_lost(job.hosts.host(0), "host a was lost: it did not answer", job.now());
  REQUIRE(job.losses.size() == 1);
  CHECK(job.losses[0] == "0: host a was lost: it did not answer");
  job.ask({2, 3});
  CHECK(job.ranks() == "2 3");
}

}  // namespace
}  // namespace hvd::launcher
