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

TEST_CASE("a new host interrupts the ranks only once its processes are ready") {
  RecordedJob job(of_script());
  job.begin({kTwoHosts[0]});
  job.ask({0, 1});
  job.generations.discovered(kTwoHosts, job.now());
  CHECK(job.started == std::vector<std::string>{"b:2"});
  job.ask({2});
  job.wait(0.5);
  CHECK(job.updates.empty());  // another rank may fail within a second
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
  TrainingJob job(of_script());
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
  TrainingJob job(of_script(4));
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

TEST_CASE("a pause ends when the host that left comes back") {
  TrainingJob job(of_script(4));
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

TEST_CASE("a host that leaves the answer is ended after its ranks have asked with the others") {
  TrainingJob job(of_script());
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
  TrainingJob job(of_script());
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

TEST_CASE("the end: after a success no generation begins, and who asks for one is ended") {
  TrainingJob job;
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
  limits.hosts = HostSource::kJoining;
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
  // b has a free slot, but its agent has started its last process; a has no agent.
  job.generations.discovered(both, job.now());
  CHECK(job.started.size() == 1);
  job.generations.discovered({{"b", "", 2}}, job.now());
  job.generations.discovered(both, job.now());
  CHECK(job.started == std::vector<std::string>{"b:1", "a:2"});
}

// Sends the request of a process whose generation lost a member before the ranks met.
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
  // A rank fails before the new ranks have met: process 0 has the state, new processes do not.
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
  // The ranks on host a have ended, and the state is lost.
  CHECK(job.end.find("no remaining rank has the training state") != std::string::npos);
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

TEST_CASE("the sentence of a pause has its cause and the hosts that may come") {
  RecordedJob job(of_script(3), CooldownRange{10, 100});
  job.begin({{"a", "", 1}, {"b", "", 1}, {"c", "", 1}});
  job.ask({0, 1, 2});
  job.generations.discovered({{"a", "", 1}, {"b", "", 1}, {"c", "", 1}, {"d", "", 1}}, job.now());
  job.generations.start_failed(job.hosts.host(3), "host d: connect: refused", job.now());
  job.generations.ended(1, 1, "rank 1 on host b failed", job.now());
  job.generations.discovered({{"a", "", 1}, {"b", "", 1}, {"c", "", 1}, {"d", "", 1}, {"e", "", 1}},
                             job.now());
  job.generations.ended(2, 1, "rank 2 on host c failed", job.now());
  job.ask({0});
  CHECK(job.said.back() ==
        "the job pauses: it has 1 of at least 3 ranks, since rank 1 on host b failed; it waits for "
        "host b (tried again in 20 s), host c (tried again in 20 s), host d (tried again in 5 s), "
        "host e (starting), "
        "more hosts from the discovery script");
}

TEST_CASE(
    "the number of a process beyond 32 bits, or of one that has not started, changes nothing") {
  TrainingJob job(of_script());
  job.generations.discovered({{"a", "", 2}, {"b", "", 2}, {"c", "", 1}}, job.now());
  REQUIRE(job.hosts.rank(4).place_state() == PlaceState::kPlanned);
  const std::string ranks = job.ranks();
  for (const int64_t number : {int64_t{1} << 32, int64_t{-1}, int64_t{4}, int64_t{5}}) {
    job.generations.requested(number, {.number = 9, .generation = 0}, job.now());
    job.generations.runs(number, ElasticCall::kInside);
  }
  CHECK(job.hosts.rank(0).place_state() == PlaceState::kMember);
  CHECK(job.hosts.rank(4).place_state() == PlaceState::kPlanned);
  for (const RankRun& rank : job.hosts.ranks()) CHECK_FALSE(rank.place().is_in_run());
  CHECK(job.ranks() == ranks);
  CHECK(job.hosts.generation() == 0);
}

}  // namespace
}  // namespace hvd::launcher
