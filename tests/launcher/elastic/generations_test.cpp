#include "launcher/elastic/generations.h"

#include <doctest/doctest.h>

#include "base/text.h"
#include "tests/launcher/elastic/recorded_job.h"

namespace hvd::launcher {
namespace {

TEST_CASE("the first generation begins when all processes have asked") {
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 3});
  CHECK(job.places.empty());
  job.ask({2});
  CHECK(job.ranks() == "0+ 1+ 2+ 3+");
  CHECK(job.places.size() == 4);
}

TEST_CASE("a failed rank takes its host out, and the next generation has the others") {
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
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

// Workers of Horovod's own have asked again.
void ask_as_originals(RecordedJob& job, std::initializer_list<int> who) {
  for (const int process : who) {
    job.generations.original_requested(process, ++job.requests[process], job.now());
  }
}

GenerationLimits of_originals() {
  GenerationLimits limits = of_script();
  limits.may_be_originals = true;
  return limits;
}

TEST_CASE("Horovod's own workers begin without a request, and survive a failed one") {
  RecordedJob job(of_originals());
  job.begin(kTwoHosts);
  CHECK(job.generations.table().members() == std::vector<int>{0, 1, 2, 3});
  CHECK(job.generations.ended(3, 137, "rank 3 was killed", job.now()));
  CHECK(job.ended == std::vector<int>{1});
  ask_as_originals(job, {0});
  CHECK(job.generations.is_asking(0));
  CHECK(job.record.members.empty());
  ask_as_originals(job, {1});
  CHECK(job.ranks() == "0 1");
  CHECK(job.record.number == 1);
  CHECK(job.places == std::map<int, int32_t>{{0, 1}, {1, 1}});
  CHECK(job.restarts == 0);
  CHECK(!job.generations.is_asking(0));
}

TEST_CASE("a new worker of Horovod's own starts when its place is known") {
  RecordedJob job(of_originals());
  job.begin({{"a", "", 1}});
  job.generations.discovered({{"a", "", 1}, {"b", "", 2}}, job.now());
  CHECK(job.started == std::vector<std::string>{"b:2"});
  CHECK(job.updates.empty());
  job.generations.prepared(1, job.now());
  job.wait(1);
  CHECK(job.updates == std::vector<std::string>{"0:2"});
  CHECK(job.begun.empty());
  ask_as_originals(job, {0});
  CHECK(job.ranks() == "0 1+ 2+");
  CHECK(job.begun == std::vector<int>{1});
  CHECK(job.places == std::map<int, int32_t>{{0, 1}});
  // The new ones are ranks now, and the next generation waits for them.
  CHECK(job.generations.ended(0, 137, "rank 0 was killed", job.now()));
  ask_as_originals(job, {1});
  CHECK(job.record.number == 1);
  ask_as_originals(job, {2});
  CHECK(job.ranks() == "1 2");
}

TEST_CASE("Horovod's own workers cannot leave their first init when one of them fails there") {
  RecordedJob job(of_originals());
  job.begin(kTwoHosts);
  CHECK(job.generations.ended(0, 134, "rank 0 on host a was killed", job.now()));
  job.wait(29);
  CHECK_FALSE(job.exit_code);
  job.wait(1);
  CHECK(job.exit_code == 134);
  CHECK(
      job.end ==
      "rank 0 on host a was killed; no other rank has entered hvd.elastic.run within 30 s of that "
      "(--start-timeout)");
}

TEST_CASE("a loss that no rank has noticed is named each minute") {
  RecordedJob job(of_originals());
  job.begin(kTwoHosts);
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
        "the next generation waits until rank 2 on host b, rank 3 on host b notice at an operation "
        "of "
        "Horovod that rank 0 on host a was killed");
  ask_as_originals(job, {2, 3});
  CHECK(job.ranks() == "2 3");
  job.said.clear();
  job.wait(60);
  CHECK(job.said.empty());
}

TEST_CASE("a job whose ranks never notice a loss ends after --elastic-timeout") {
  RecordedJob job(of_script());
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  job.generations.ended(2, 137, "rank 2 on host b was killed", job.now());
  for (int minute = 0; minute < 9; ++minute) job.wait(60);
  CHECK_FALSE(job.exit_code);
  job.wait(59);
  CHECK_FALSE(job.exit_code);
  job.wait(1);
  CHECK(job.exit_code == 137);
  CHECK(job.end ==
        "rank 2 on host b was killed; rank 0 on host a, rank 1 on host a have called nothing of "
        "Horovod within 600 s of that (--elastic-timeout); horovodrun stack shows where such ranks "
        "are");
}

TEST_CASE("a worker of Horovod's own on a host that is no longer named loses its place") {
  RecordedJob job(of_originals());
  job.begin(kTwoHosts);
  job.generations.discovered({{"a", "", 2}}, job.now());
  CHECK(job.updates == std::vector<std::string>{"0:1"});
  ask_as_originals(job, {0, 1, 2, 3});
  CHECK(job.ranks() == "0 1");
  CHECK(job.ended == std::vector<int>{1});
  CHECK(job.generations.ended(2, 134, "aborted", job.now()));
  CHECK(!job.exit_code);
}

TEST_CASE("ranks of ours ask for their first places where Horovod's own may come") {
  RecordedJob job(of_originals());
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "0+ 1+ 2+ 3+");
  CHECK(job.record.number == 0);
  ask_as_originals(job, {0});  // of a mixed job, which is none
  CHECK(!job.generations.is_asking(0));
}

TEST_CASE("a new host interrupts the ranks only once its processes are ready") {
  RecordedJob job(of_script());
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  job.generations.discovered(kTwoHosts, job.now());
  CHECK(job.started == std::vector<std::string>{"b:2"});
  job.ask({2});
  job.wait(0.5);
  CHECK(job.updates.empty());  // another one may come within a second
  job.ask({3});
  CHECK(job.updates == std::vector<std::string>{"0:2"});
  job.ask({0});
  job.ask({1});
  CHECK(job.ranks() == "0 1 2+ 3+");
}

TEST_CASE("ten hosts that become ready within a second cost one change of generation") {
  RecordedJob job(of_script());
  std::vector<Host> hosts = {{"a", "", 1}};
  job.begin(hosts);
  job.ask({0});
  for (int number = 0; number < 10; ++number) hosts.push_back({cat("b", number), "", 1});
  job.generations.discovered(hosts, job.now());
  CHECK(job.started.size() == 10);
  for (int process = 1; process <= 10; ++process) {
    job.wait(0.09);
    job.ask({process});
  }
  CHECK(job.updates == std::vector<std::string>{"0:2"});
  job.ask({0});
  CHECK(job.record.number == 1);
  CHECK(job.record.members.size() == 11);
}

TEST_CASE("an answer that changes each second costs nothing before the next commit") {
  RecordedJob job(of_script());
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  for (int second = 0; second < 20; ++second) {
    job.wait(1);
    job.generations.discovered(second % 2 == 0 ? std::vector<Host>{kTwoHosts[0]} : kTwoHosts,
                               job.now());
  }
  CHECK(job.updates == std::vector<std::string>{"0:1"});
  CHECK(job.started.empty());
  CHECK(job.ended.empty());
  job.ask({0, 1, 2, 3});
  CHECK(job.record.number == 1);
  CHECK(job.ranks() == "0 1 2 3");
}

TEST_CASE("a new host whose name comes and goes while it starts costs the ranks nothing") {
  RecordedJob job(of_script());
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  for (int second = 0; second < 20; ++second) {
    job.wait(1);
    job.generations.discovered(second % 2 == 1 ? std::vector<Host>{kTwoHosts[0]} : kTwoHosts,
                               job.now());
  }
  CHECK(job.updates.empty());
  CHECK(job.started.size() == job.ended.size());
}

TEST_CASE("a host takes the place of another one, in one answer or in two") {
  RecordedJob job(of_script(4));
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  const std::vector<Host> others = {kTwoHosts[0], {"c", "", 2}};
  SUBCASE("in one") {}
  SUBCASE("in two within a second") {
    job.generations.discovered({kTwoHosts[0]}, job.now());
    job.wait(0.5);
  }
  job.generations.discovered(others, job.now());
  CHECK(job.started == std::vector<std::string>{"c:2"});
  job.ask({4, 5, 0, 1, 2, 3});
  CHECK(job.record.number == 1);
  CHECK(job.ranks() == "0 1 4+ 5+");
  CHECK_FALSE(job.exit_code);
}

TEST_CASE("a failure on each of the hosts ends the job with the first one") {
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  job.generations.ended(1, 7, "rank 1 exited with code 7", job.now());
  CHECK_FALSE(job.exit_code);
  job.generations.ended(2, 9, "rank 2 exited with code 9", job.now());
  CHECK(job.exit_code == 7);
  CHECK(job.end.find("rank 1 exited with code 7") != std::string::npos);
}

TEST_CASE("a pause ends when the host that left comes back") {
  RecordedJob job(of_script(4));
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  job.generations.discovered({kTwoHosts[0]}, job.now());
  job.ask({0, 1, 2, 3});
  CHECK(job.said.back().find("the job pauses") == 0);
  job.generations.discovered(kTwoHosts, job.now());
  if (job.record.number == 0) job.ask({4, 5});
  CHECK(job.record.number == 1);
  CHECK(job.record.members.size() == 4);
  CHECK(job.ranks().starts_with("0 1 "));
}

TEST_CASE("a process that is not ready within a second waits for a later generation") {
  RecordedJob job(of_script());
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  job.generations.discovered(kTwoHosts, job.now());
  job.ask({2});
  job.wait(1);
  CHECK(job.updates == std::vector<std::string>{"0:2"});
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1 2+");
  job.ask({3});
  CHECK(job.updates == std::vector<std::string>{"0:2", "1:2"});
  job.ask({0, 1, 2});
  CHECK(job.ranks() == "0 1 2 3+");
}

TEST_CASE("a new host that fails costs the ranks nothing, and is tried again") {
  RecordedJob job(of_script());
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  job.generations.discovered(kTwoHosts, job.now());
  job.generations.start_failed(1, "host b: connect: refused", job.now());
  CHECK(job.updates.empty());
  CHECK(job.losses.empty());
  job.wait(4);
  CHECK(job.started.size() == 1);
  job.wait(1);
  CHECK(job.started == std::vector<std::string>{"b:2", "b:2"});
}

TEST_CASE("a new process that fails costs the ranks of its host nothing") {
  RecordedJob job(of_script());
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  job.generations.discovered({kTwoHosts[0], {"b", "", 3}}, job.now());
  CHECK(job.started == std::vector<std::string>{"b:1"});
  CHECK(job.generations.ended(4, 1, "process 4 on host b exited with code 1", job.now()));
  CHECK(job.said.back() ==
        "process 4 on host b exited with code 1; the job goes on without it, and starts another "
        "one there in 5 s");
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
        "and starts another one there in 5 s");
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
  job.generations.prepared(1, job.now());
  job.ask({2});
  job.wait(59);
  CHECK(job.said.empty());
  job.wait(1);
  REQUIRE(job.said.size() == 1);
  CHECK(job.said[0] ==
        "process 3 on host b has not called hvd.init within 60 s of its start; it is ended after "
        "80 s");
  job.wait(19);
  CHECK(job.ended_processes.empty());
  job.wait(1);
  CHECK(job.ended_processes == std::vector<int>{3});
  REQUIRE(job.said.size() == 2);
  CHECK(job.said[1] ==
        "process 3 on host b has not called hvd.init within 80 s of its start, 30 s more than the "
        "first ranks needed (--start-timeout); the job goes on without it, and starts another one "
        "there in 5 s");
  CHECK(job.losses.empty());
  job.wait(5);
  CHECK(job.started == std::vector<std::string>{"b:2", "b:1"});
}

TEST_CASE("a process that is started anew before the first generation has its time as well") {
  RecordedJob job([] {
    GenerationLimits limits;
    limits.least = 2;
    return limits;
  }());
  job.begin({kTwoHosts[0]});
  job.ask({0});
  job.wait(5);
  job.wait(25);
  CHECK(job.ended_processes == std::vector<int>{1});
  job.wait(1);
  REQUIRE(job.started == std::vector<std::string>{"a:1"});
  job.generations.prepared(1, job.now());
  job.wait(29);
  CHECK(job.ended_processes.size() == 1);
  job.ask({2});
  CHECK(job.ranks() == "0+ 2+");
}

TEST_CASE("a host that leaves the answer is ended after its ranks have asked with the others") {
  RecordedJob job(of_script());
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  job.generations.discovered({kTwoHosts[1]}, job.now());
  CHECK(job.updates == std::vector<std::string>{"0:1"});
  CHECK(job.ended.empty());
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "2 3");
  CHECK(job.ended == std::vector<int>{0});
  CHECK(job.places[0] == 0);
}

TEST_CASE("grow, then shrink to the second host alone") {
  RecordedJob job(of_script());
  job.begin({{"a", "", 1}});
  job.ask({0});
  job.generations.discovered({{"a", "", 1}, {"b", "", 1}}, job.now());
  job.ask({1});
  job.ask({0});
  CHECK(job.ranks() == "0 1+");
  job.generations.discovered({{"b", "", 1}}, job.now());
  job.ask({0, 1});
  CHECK(job.ranks() == "1");
  CHECK(job.record.number == 2);
}

TEST_CASE("a host with fewer slots loses its highest local ranks") {
  RecordedJob job(of_script());
  job.begin({{"a", "", 3}});
  job.ask({0, 1, 2});
  job.generations.discovered({{"a", "", 2}}, job.now());
  CHECK(job.updates == std::vector<std::string>{"0:1"});
  job.ask({0, 1, 2});
  CHECK(job.ranks() == "0 1");
  CHECK(job.ended_processes == std::vector<int>{2});
  CHECK(job.ended.empty());
}

TEST_CASE(
    "the largest number of ranks leaves a spare waiting, which takes the place of a failed rank") {
  GenerationLimits limits = of_script();
  limits.most = 2;
  RecordedJob job(limits);
  job.begin({{"a", "", 1}, {"b", "", 1}});
  job.generations.discovered({{"a", "", 1}, {"b", "", 1}, {"c", "", 1}}, job.now());
  CHECK(job.started.empty());
  job.ask({0, 1});
  job.generations.ended(0, 1, "rank 0 exited with code 1", job.now());
  CHECK(job.started == std::vector<std::string>{"c:1"});
  job.ask({1});
  CHECK(job.ranks() == "1");
  job.ask({2});
  job.ask({1});
  CHECK(job.ranks() == "1 2+");
}

TEST_CASE("below the minimum the job pauses, and goes on when a host comes") {
  RecordedJob job(of_script(2));
  job.begin({{"a", "", 1}, {"b", "", 1}});
  job.ask({0, 1});
  job.generations.ended(1, 1, "rank 1 failed", job.now());
  job.ask({0});
  CHECK(job.record.number == 0);
  REQUIRE_FALSE(job.said.empty());
  CHECK(job.said.back().find("pauses: it has 1 of at least 2 ranks") != std::string::npos);
  job.wait(300);
  CHECK_FALSE(job.exit_code);
  job.generations.discovered({{"a", "", 1}, {"c", "", 1}}, job.now());
  job.ask({2});
  CHECK(job.ranks() == "0 2+");
}

TEST_CASE("an empty answer of the script pauses the job, and ends no rank") {
  RecordedJob job(of_script());
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  job.generations.discovered({}, job.now());
  CHECK(job.updates == std::vector<std::string>{"0:1"});
  job.ask({0, 1, 2, 3});
  CHECK_FALSE(job.exit_code);
  CHECK(job.ended.empty());
  REQUIRE_FALSE(job.said.empty());
  CHECK(job.said.back().find("the job pauses: it has 0 of at least 1 rank") == 0);
  SUBCASE("until the hosts are back") {
    job.wait(60);
    job.generations.discovered(kTwoHosts, job.now());
    CHECK(job.ranks() == "0 1 2 3");
    CHECK(job.record.number == 1);
    CHECK(job.started.empty());
  }
  SUBCASE("until some of the hosts are back") {
    job.generations.discovered({kTwoHosts[1]}, job.now());
    CHECK(job.ranks() == "2 3");
    CHECK(job.ended == std::vector<int>{0});
  }
  SUBCASE("for --elastic-timeout at most") {
    for (int minute = 0; minute < 10 && !job.exit_code; ++minute) job.wait(60);
    CHECK(job.exit_code == 1);
    CHECK(job.end.find("--elastic-timeout") != std::string::npos);
  }
}

TEST_CASE("where the script replaces all hosts, a rank stays until the new ones have the state") {
  GenerationLimits limits = of_script(2);
  SUBCASE("with no largest number of ranks") {}
  SUBCASE("with as many ranks as there may be") { limits.most = 2; }
  RecordedJob job(limits);
  const std::vector<Host> others = {{"c", "", 2}};
  const int first = limits.most ? 2 : 4;
  job.begin(limits.most ? std::vector<Host>{{"a", "", 1}, {"b", "", 1}} : kTwoHosts);
  if (limits.most)
    job.ask({0, 1});
  else
    job.ask({0, 1, 2, 3});
  job.generations.discovered(others, job.now());
  CHECK(job.started == std::vector<std::string>{"c:2"});
  CHECK(job.updates == std::vector<std::string>{"0:1"});
  if (limits.most)
    job.ask({0, 1});
  else
    job.ask({0, 1, 2, 3});
  CHECK_FALSE(job.exit_code);
  CHECK(job.record.number == 0);
  job.ask({first});
  job.ask({first + 1});
  CHECK(job.record.number == 1);
  CHECK(job.ranks() == std::string(limits.most ? "0 2+" : "0 4+ 5+"));
  CHECK(job.updates.back() == "1:1");
  job.ask({0, first});
  if (!limits.most) job.ask({first + 1});
  CHECK(job.record.number == 2);
  CHECK(job.ranks() == std::string(limits.most ? "2 3+" : "4 5"));
  CHECK(job.ended.size() == 2);
  CHECK_FALSE(job.exit_code);
}

TEST_CASE("a pause that takes too long ends the job") {
  RecordedJob job(of_script(2));
  job.begin({{"a", "", 1}, {"b", "", 1}});
  job.ask({0, 1});
  job.generations.ended(1, 1, "rank 1 failed", job.now());
  job.ask({0});
  for (int minute = 0; minute < 10 && !job.exit_code; ++minute) job.wait(60);
  CHECK(job.exit_code == 1);
  CHECK(job.end.find("--elastic-timeout") != std::string::npos);
}

TEST_CASE(
    "without a script, and with all other hosts listed for ever, there is nothing to wait for") {
  GenerationLimits limits;
  limits.least = 2;
  RecordedJob job(limits);
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

TEST_CASE("the end: after a success no generation begins, and who asks for one is ended") {
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  CHECK(job.generations.ended(0, 0, "", job.now()));
  job.ask({1});
  CHECK(job.ended == std::vector<int>{0});
  CHECK(job.record.number == 0);
  CHECK(job.generations.ended(2, 0, "", job.now()));
  SUBCASE("all succeed") {
    CHECK(job.generations.ended(3, 0, "", job.now()));
    CHECK_FALSE(job.exit_code);
  }
  SUBCASE("the last one fails") { CHECK_FALSE(job.generations.ended(3, 5, "failed", job.now())); }
}

TEST_CASE(
    "a host that joins by itself starts its processes once, and may join again after a failure") {
  GenerationLimits limits = of_script();
  limits.hosts_join = true;
  limits.most = 3;
  RecordedJob job(limits);
  job.begin({{"a", "", 2}});
  job.ask({0, 1});
  const std::vector<Host> both = {{"a", "", 2}, {"b", "", 2}};
  job.generations.discovered(both, job.now());
  CHECK(job.started == std::vector<std::string>{"b:1"});
  job.ask({2});
  job.wait(1);
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1 2+");
  job.generations.ended(0, 137, "rank 0 on host a was killed", job.now());
  CHECK(job.said.back() ==
        "rank 0 on host a was killed; host a is used again when an agent joins there");
  // b has a free slot, but its agent has started what it starts; a has no agent.
  job.generations.discovered(both, job.now());
  CHECK(job.started.size() == 1);
  job.generations.discovered({{"b", "", 2}}, job.now());
  job.generations.discovered(both, job.now());
  CHECK(job.started == std::vector<std::string>{"b:1", "a:2"});
}

// Asks as a process whose generation lost a member before its ranks met.
void ask_again_unmet(RecordedJob& job, int process, int32_t met) {
  job.generations.requested(process, {.number = ++job.requests[process], .generation = met},
                            job.now());
}

TEST_CASE("a process stays new until the ranks of a generation have met") {
  RecordedJob job(of_script());
  job.begin({{"a", "", 2}});
  job.ask({0, 1});
  job.generations.discovered(kTwoHosts, job.now());
  job.ask({2, 3});
  job.wait(1);
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1 2+ 3+");
  // Rank 1 fails before they have met: process 0 has the state, and 2 and 3 do not.
  job.generations.ended(3, 1, "rank 3 on host b failed", job.now());
  const std::vector<Host> all = {{"a", "", 2}, {"b", "", 2}, {"c", "", 1}};
  job.generations.discovered(all, job.now());
  CHECK(job.started.back() == "c:1");
  job.ask({4});
  ask_again_unmet(job, 0, 0);
  ask_again_unmet(job, 1, 0);
  CHECK(job.ranks() == "0 1 4+");
  job.generations.ended(1, 1, "rank 1 on host a failed", job.now());
  ask_again_unmet(job, 4, -1);
  // The ranks on host a are gone, and with them the state.
  CHECK(job.end.find("no rank is left that has the state of the training") != std::string::npos);
}

TEST_CASE("a new process whose first generation was void is new in the next one") {
  RecordedJob job(of_script());
  job.begin({{"a", "", 1}, {"b", "", 1}});
  job.ask({0, 1});
  const std::vector<Host> all = {{"a", "", 1}, {"b", "", 1}, {"c", "", 1}};
  job.generations.discovered(all, job.now());
  job.ask({2});
  job.wait(1);
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1 2+");
  job.generations.ended(1, 1, "rank 1 on host b failed", job.now());
  ask_again_unmet(job, 0, 0);
  ask_again_unmet(job, 2, -1);
  CHECK(job.ranks() == "0 2+");
}

TEST_CASE("ranks that the job begins with may take long to enter elastic.run") {
  RecordedJob job(of_script());
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
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

TEST_CASE("a resize that is refused changes nothing") {
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  REQUIRE(job.generations.remove_host("b", job.now()).ok());
  CHECK(job.generations.resize(9, job.now()).status().message() ==
        "the hosts of the job have slots for 4 ranks");
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "0 1");
}

TEST_CASE("a host whose agent ends is not taken back by a resize") {
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  job.generations.host_leaves(1, "its agent got SIGTERM", 30, job.now());
  static_cast<void>(job.generations.resize(4, job.now()));
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "0 1");
}

TEST_CASE("when all ranks fail, the first failure is the job's") {
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
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
  job.generations.host_lost(2, "host c was lost", job.now());
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
        "the ranks of the job have changed 3 times, and may not do so again (--reset-limit); "
        "generation 1: new ranks were ready; generation 2: rank 1 on host b failed; generation 3: "
        "the ranks asked for it, after an error of theirs");
}

TEST_CASE("the sentence of a pause has its cause and the hosts that may come") {
  RecordedJob job(of_script(3), CooldownRange{10, 100});
  job.begin({{"a", "", 1}, {"b", "", 1}, {"c", "", 1}});
  job.ask({0, 1, 2});
  job.generations.discovered({{"a", "", 1}, {"b", "", 1}, {"c", "", 1}, {"d", "", 1}}, job.now());
  job.generations.start_failed(3, "host d: connect: refused", job.now());
  job.generations.ended(1, 1, "rank 1 on host b failed", job.now());
  job.generations.discovered({{"a", "", 1}, {"b", "", 1}, {"c", "", 1}, {"d", "", 1}, {"e", "", 1}},
                             job.now());
  job.generations.ended(2, 1, "rank 2 on host c failed", job.now());
  job.ask({0});
  CHECK(job.said.back() ==
        "the job pauses: it has 1 of at least 3 ranks, since rank 1 on host b failed; it waits for "
        "host b (again in 20 s), host c (again in 20 s), host d (again in 5 s), host e (starting), "
        "further hosts of the discovery script");
}

TEST_CASE("a limit of resets within a time forgets old ones") {
  GenerationLimits limits;
  limits.resets = ResetLimit{.resets = 1, .seconds = 60};
  RecordedJob job(limits);
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

TEST_CASE("a rank that does not come back is named, and then given up") {
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
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

TEST_CASE("with --restart-ranks a failed rank is started again on its host") {
  GenerationLimits limits;
  limits.restarts_ranks = true;
  RecordedJob job(limits);
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
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

// The request of a process that has not committed since its ranks met.
void ask_uncommitted(RecordedJob& job, std::initializer_list<int> who) {
  for (const int process : who) {
    job.generations.requested(process,
                              {.number = ++job.requests[process],
                               .generation = job.places.at(process),
                               .has_committed = false},
                              job.now());
  }
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
    // The failures before the commit do not count.
    job.generations.ended(4, 1, "rank 2 on host d exited with code 1", job.now(), error);
    job.ask({0, 1});
    CHECK(job.record.number == 3);
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
  GenerationLimits limits;
  limits.least = 2;
  RecordedJob job(limits);
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

TEST_CASE("resize to fewer ranks ends the last slots of the newest hosts, at the next commit") {
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
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
  GenerationLimits limits;
  limits.most = 2;
  RecordedJob job(limits);
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
  GenerationLimits limits;
  limits.most = 2;
  RecordedJob job(limits);
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
  GenerationLimits limits;
  limits.least = 2;
  RecordedJob job(limits);
  job.begin(kTwoHosts);
  CHECK(job.generations.resize(3, job.now()).error().message() ==
        "the ranks of the job have not begun yet");
  job.ask({0, 1, 2, 3});
  CHECK(job.generations.resize(1, job.now()).error().message() ==
        "the job needs at least 2 ranks (--min-np)");
  CHECK(job.generations.resize(5, job.now()).error().message() ==
        "the hosts of the job have slots for 4 ranks");
  CHECK(*job.generations.resize(4, job.now()) == "the job has 4 ranks, and gets no more");
  job.generations.ended(0, 0, "", job.now());
  CHECK(job.generations.resize(3, job.now()).error().message() == "the job ends");
}

TEST_CASE("with a discovery script, resize above the slots waits for hosts") {
  RecordedJob job(of_script());
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  const auto answer = job.generations.resize(3, job.now());
  REQUIRE(answer.ok());
  CHECK(answer->find("when the discovery script names hosts for them; it names 2 slots") !=
        std::string::npos);
  job.generations.discovered(kTwoHosts, job.now());
  CHECK(job.started == std::vector<std::string>{"b:1"});
}

TEST_CASE("a job whose ranks may not change again is not resized") {
  GenerationLimits limits;
  limits.resets = ResetLimit{.resets = 1, .seconds = {}};
  RecordedJob job(limits);
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  REQUIRE(job.generations.resize(3, job.now()).ok());
  job.ask({0, 1, 2, 3});
  CHECK(job.generations.resize(2, job.now()).error().message() ==
        "the ranks of the job may not change again (--reset-limit)");
}

TEST_CASE("a removed host leaves at the next commit, and is used again when a resize needs it") {
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
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

TEST_CASE("a removed host is used again when the script names it anew") {
  RecordedJob job(of_script());
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
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
  limits.hosts_join = true;
  RecordedJob job(limits);
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  CHECK(*job.generations.resize(5, job.now()) ==
        "the job goes from 4 to 5 ranks when hosts join for them; those of now have 4 slots");
  CHECK(*job.generations.remove_host("b", job.now()) ==
        "host b leaves the job when its ranks next commit; its slots stay empty until horovodrun "
        "resize needs them, or another agent joins there");
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "0 1");
  job.generations.discovered({kTwoHosts[0]}, job.now());  // its agent has ended
  job.generations.discovered(kTwoHosts, job.now());
  CHECK(job.started == std::vector<std::string>{"b:2"});
}

TEST_CASE("a removed rank leaves its slot empty, and its host keeps the others") {
  GenerationLimits limits;
  limits.restarts_ranks = true;
  RecordedJob job(limits);
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  const auto answer = job.generations.remove_rank(0, job.now());
  REQUIRE(answer.ok());
  CHECK(
      answer->starts_with("rank 0 on host a leaves the job when the ranks next commit; its slot"));
  CHECK(job.generations.remove_rank(0, job.now()).error().message() ==
        "rank 0 leaves the job already");
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
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  REQUIRE(job.generations.remove_rank(3, job.now()).ok());
  REQUIRE(job.generations.resize(4, job.now()).ok());
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "0 1 2 3");
  CHECK(job.ended_processes.empty());
}

TEST_CASE("remove refuses what would end the job, and what is not there") {
  GenerationLimits limits;
  limits.least = 3;
  RecordedJob job(limits);
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  CHECK(job.generations.remove_host("b", job.now()).error().message() ==
        "without host b the hosts of the job have slots for 2 ranks, and the job needs at least 3");
  CHECK(job.generations.remove_host("c", job.now()).error().message() ==
        "host c is not one of the hosts that the job uses: a, b");
  CHECK(job.generations.remove_rank(4, job.now()).error().message() ==
        "the job has no rank 4; its last one is 3");
  REQUIRE(job.generations.remove_rank(1, job.now()).ok());
  CHECK(job.generations.remove_rank(2, job.now()).error().message() ==
        "without rank 2 the hosts of the job have slots for 2 ranks, and the job needs at least 3");
}

TEST_CASE("the host that alone has the state is not removed") {
  GenerationLimits limits;
  limits.most = 2;
  RecordedJob job(limits);
  job.begin({kTwoHosts[0]});
  job.generations.discovered(kTwoHosts, job.now());
  job.ask({0, 1});
  CHECK(job.generations.remove_host("a", job.now()).error().message() ==
        "without host a no rank is left that has the state of the training");
  REQUIRE(job.generations.remove_host("b", job.now()).ok());
  CHECK(job.updates.empty());
}

TEST_CASE("a host whose agent is about to end leaves at the next commit, and nothing is lost") {
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  job.generations.host_leaves(0, "its agent got signal 15", 30, job.now());
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
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  job.generations.host_leaves(0, "its agent got signal 15", 30, job.now());
  job.generations.host_lost(0, "host a was lost: no commit", job.now());
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
  job.generations.host_leaves(0, "its agent got signal 15", 30, job.now());
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
  job.generations.host_leaves(0, "its agent got signal 15", 30, job.now());
  REQUIRE(job.said.size() == 1);
  CHECK(job.said[0].find("no other host has the state") != std::string::npos);
  CHECK(job.updates.empty());
  CHECK_FALSE(job.exit_code);
}

TEST_CASE("the only host with the state leaves once another host has got the state") {
  RecordedJob job;
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  job.generations.host_leaves(0, "its agent got signal 15", 30, job.now());
  job.generations.discovered(kTwoHosts, job.now());
  job.generations.prepared(1, job.now());
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

TEST_CASE("the ranks learn of a lost host and the cause") {
  RecordedJob job;
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  job.generations.host_lost(0, "host a was lost: it gave no sign of life", job.now());
  REQUIRE(job.losses.size() == 1);
  CHECK(job.losses[0] == "0: host a was lost: it gave no sign of life");
  job.ask({2, 3});
  CHECK(job.ranks() == "2 3");
}

GenerationLimits of_program(int least = 1) {
  GenerationLimits limits = of_script(least);
  limits.restarts_programs = true;
  limits.most_restarts = 1;
  return limits;
}

TEST_CASE("a program that never calls hvd.init is started again after a failure") {
  RecordedJob job(of_program());
  job.begin(kTwoHosts);
  CHECK(job.generations.ended(2, 137, "rank 2 was killed", job.now()));
  CHECK(job.restarts == 1);
  CHECK(job.said.back().find("rank 2 was killed; host b is not used again") == 0);
  CHECK(job.said.back().find("(restart 1 of 1)") != std::string::npos);
  CHECK(job.history.generation == 1);
  CHECK_FALSE(job.history.pool.may_start("b", job.now()));
  CHECK(job.history.pool.may_start("a", job.now()));

  // The next launch, which has host a alone.
  RecordedJob next(of_program(), job.history);
  next.begin({kTwoHosts[0]});
  CHECK(next.generations.generation() == 1);
  next.generations.ended(0, 7, "rank 0 exited with code 7", next.now());
  CHECK(next.restarts == 0);
  CHECK(next.exit_code == 7);
  CHECK(next.end.find("(--max-restarts)") != std::string::npos);
}

TEST_CASE("a rank that fails soon after its start ends the job, unless restarts are asked for") {
  GenerationLimits limits = of_program();
  limits.most_restarts.reset();
  RecordedJob job(limits);
  job.begin(kTwoHosts);
  job.wait(29);
  job.generations.ended(1, 1, "rank 1 exited with code 1", job.now());
  CHECK_FALSE(job.exit_code);  // a lost host may be the cause
  job.wait(3.6);
  CHECK(job.restarts == 0);
  CHECK(job.exit_code == 1);
  CHECK(job.end.find("rank 1 exited with code 1; the ranks are not started again") == 0);

  RecordedJob killed(limits);
  killed.begin(kTwoHosts);
  killed.generations.ended(1, 137, "rank 1 was killed", killed.now());
  CHECK(killed.restarts == 1);

  RecordedJob later(limits);
  later.begin(kTwoHosts);
  later.wait(31);
  later.generations.ended(1, 1, "rank 1 exited with code 1", later.now());
  later.wait(3.6);
  CHECK(later.said.back().find("(restart 1 of 3)") != std::string::npos);
}

TEST_CASE("a failure that is known later is the cause of the exits before it") {
  RecordedJob lost(of_program());
  lost.begin(kTwoHosts);
  lost.generations.ended(0, 1, "rank 0 exited with code 1", lost.now());
  lost.generations.ended(1, 134, "rank 1 was aborted", lost.now());
  lost.wait(3);
  CHECK(lost.restarts == 0);
  CHECK(lost.generations.host_lost(1, "host b was lost", lost.now()));
  CHECK(lost.restarts == 1);
  CHECK(lost.history.restarts == 0);
  CHECK(lost.history.pool.may_start("a", lost.now()));

  RecordedJob killed(of_program());
  killed.begin(kTwoHosts);
  killed.generations.ended(0, 1, "rank 0 exited with code 1", killed.now());
  killed.generations.ended(2, 137, "rank 2 was killed", killed.now());
  CHECK(killed.restarts == 1);
  CHECK(killed.said.back().find("rank 2 was killed; host b is not used again") == 0);
}

TEST_CASE("exit codes of all ranks start a program again on the same hosts") {
  RecordedJob job(of_program());
  job.begin(kTwoHosts);
  for (const int process : {3, 0, 2}) {
    job.generations.ended(process, 1, cat("rank ", process, " exited"), job.now());
  }
  CHECK(job.restarts == 0);
  job.generations.ended(1, 1, "rank 1 exited", job.now());
  CHECK(job.restarts == 1);
  CHECK(job.said.back().find("rank 3 exited; it is started again in") == 0);
  job.wait(2);
  CHECK(job.history.pool.may_start("b", job.now()));
}

TEST_CASE("a host that is lost after a rank has done its work fails the job") {
  RecordedJob job(of_program());
  job.begin(kTwoHosts);
  CHECK(job.generations.ended(0, 0, "", job.now()));
  CHECK_FALSE(job.generations.host_lost(1, "host b was lost", job.now()));
  CHECK(job.restarts == 0);
}

TEST_CASE("a lost host starts a program again, and does not count as its failure") {
  RecordedJob job(of_program());
  job.begin(kTwoHosts);
  job.generations.host_lost(1, "host b was lost", job.now());
  CHECK(job.restarts == 1);
  CHECK(job.history.restarts == 0);
}

TEST_CASE(
    "a program grows when a new host is prepared and its ranks had time to enter elastic.run") {
  RecordedJob job(of_program());
  job.begin({kTwoHosts[0]});
  job.generations.discovered(kTwoHosts, job.now());
  CHECK(job.started == std::vector<std::string>{"b:2"});
  job.generations.prepared(1, job.now());
  CHECK(job.begun.empty());  // its processes would not wait
  job.wait(29);
  CHECK(job.restarts == 0);
  job.wait(1.1);
  CHECK(job.restarts == 1);
  CHECK(job.updates.empty());
}

TEST_CASE("a new host that cannot be prepared does not start a program again") {
  RecordedJob job(of_program());
  job.begin({kTwoHosts[0]});
  job.wait(60);
  job.generations.discovered(kTwoHosts, job.now());
  job.generations.start_failed(1, "host b: connect: refused", job.now());
  CHECK(job.restarts == 0);
}

TEST_CASE("hosts that leave start a program again at once when it runs for long") {
  RecordedJob job(of_program());
  job.begin(kTwoHosts);
  job.wait(60);
  job.generations.discovered({kTwoHosts[1]}, job.now());
  CHECK(job.restarts == 1);
  CHECK(job.ended.empty());  // they may save their state
}

TEST_CASE("a user learns that ranks that do not commit leave by a new start of all") {
  RecordedJob early(of_program());
  early.begin(kTwoHosts);
  early.wait(10);
  CHECK(*early.generations.resize(3, early.now()) ==
        "the job goes from 4 to 3 ranks when they next commit; if no rank enters hvd.elastic.run "
        "within 20 s, all of them start again then");
  CHECK(early.restarts == 0);
  early.wait(20.1);
  CHECK(early.restarts == 1);

  const std::string at_once =
      " at once, and all ranks start again, since none has entered hvd.elastic.run";
  RecordedJob fewer(of_program());
  fewer.begin(kTwoHosts);
  fewer.wait(60);
  CHECK(*fewer.generations.resize(3, fewer.now()) ==
        cat("the job goes from 4 to 3 ranks", at_once));
  CHECK(fewer.restarts == 1);

  RecordedJob without(of_program());
  without.begin(kTwoHosts);
  without.wait(60);
  const auto answer = without.generations.remove_host("b", without.now());
  REQUIRE(answer.ok());
  CHECK(answer->starts_with(cat("host b leaves the job", at_once, "; its slots stay empty")));
  CHECK(without.restarts == 1);

  RecordedJob leaving(of_program());
  leaving.begin(kTwoHosts);
  leaving.wait(60);
  leaving.generations.host_leaves(1, "its agent got signal 15", 30, leaving.now());
  CHECK(leaving.said.front() ==
        "host b leaves the job: its agent got signal 15; it ends in 30 s at the latest "
        "(--leave-grace)");
  CHECK(leaving.restarts == 1);

  RecordedJob more(of_program());
  more.begin({kTwoHosts[0]});
  REQUIRE(more.generations.resize(2, more.now()).ok());
  more.generations.discovered(kTwoHosts, more.now());
  more.wait(60);
  CHECK(*more.generations.resize(4, more.now()) ==
        "the job goes from 2 to 4 ranks when the slots for the new ones are ready");
}

TEST_CASE("a held host that is lost costs the ranks of a program nothing") {
  RecordedJob job(of_program());
  job.begin({kTwoHosts[0]});
  job.generations.discovered(kTwoHosts, job.now());
  job.generations.prepared(1, job.now());
  job.wait(10);
  job.generations.start_failed(1, "host b was lost: its agent was killed", job.now());
  CHECK(job.said.back().find("the job goes on without it, and tries it again in 5 s") !=
        std::string::npos);
  job.wait(19);  // past the time at which the ranks would have started again
  CHECK(job.restarts == 0);
  CHECK(job.started == std::vector<std::string>{"b:2", "b:2"});
}

TEST_CASE("a program that calls hvd.init alone is started again as well") {
  RecordedJob job(of_program());
  job.begin(kTwoHosts);
  job.ask({0, 1, 2, 3});
  CHECK(job.ranks() == "0+ 1+ 2+ 3+");
  job.generations.ended(2, 137, "rank 2 was killed", job.now());
  CHECK(job.restarts == 1);
}

TEST_CASE("a rank that has entered elastic.run keeps all processes") {
  RecordedJob job(of_program());
  job.begin({kTwoHosts[0]});
  job.generations.discovered(kTwoHosts, job.now());
  job.generations.prepared(1, job.now());
  job.ask({0, 1});
  CHECK(job.begun == std::vector<int>{1});
  job.ask({2, 3});
  job.generations.takes_part(job.now());
  CHECK(job.ranks() == "0+ 1+ 2+ 3+");
  job.wait(60);
  job.generations.ended(2, 137, "rank 2 was killed", job.now());
  job.ask({0, 1});
  CHECK(job.ranks() == "0 1");
  CHECK(job.restarts == 0);
}

TEST_CASE("ranks of a program that end, end the job with success") {
  RecordedJob job(of_program());
  job.begin(kTwoHosts);
  CHECK(job.generations.ended(0, 0, "", job.now()));
  CHECK_FALSE(job.generations.ended(2, 7, "rank 2 exited with code 7", job.now()));
  CHECK(job.restarts == 0);
}

TEST_CASE("--reset-limit counts the starts of a program") {
  GenerationLimits limits = of_program();
  limits.resets = ResetLimit{0, {}};
  RecordedJob job(limits);
  job.begin(kTwoHosts);
  job.generations.ended(2, 137, "rank 2 was killed", job.now());
  CHECK(job.restarts == 0);
  CHECK(job.end.find("--reset-limit") != std::string::npos);
}

TEST_CASE("a program with too few fixed hosts ends with its failure") {
  GenerationLimits limits = of_program(3);
  limits.finds_hosts = false;
  RecordedJob job(limits);
  job.begin(kTwoHosts);
  job.generations.ended(2, 137, "rank 2 was killed", job.now());
  CHECK(job.exit_code == 137);
  CHECK(job.end.find("its hosts have slots for 2") != std::string::npos);
}

}  // namespace
}  // namespace hvd::launcher
