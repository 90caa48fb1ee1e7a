// Programs whose ranks do not enter hvd.elastic.run: the launcher starts them again.
#include <doctest/doctest.h>

#include "base/text.h"
#include "launcher/elastic/generations.h"
#include "tests/launcher/elastic/recorded_job.h"

namespace hvd::launcher {
namespace {

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

  // Simulates the next launch, with host a only.
  RecordedJob next(of_program(), job.history);
  next.begin({kTwoHosts[0]});
  CHECK(next.hosts.generation() == 1);
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
  CHECK_FALSE(job.exit_code);  // the loss of a host may have caused the failure
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
  CHECK(lost.generations.host_lost(lost.hosts.host(1), "host b was lost", lost.now()));
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

TEST_CASE("a new process that fails does not hide the failure of a rank") {
  TrainingJob job(of_program());
  job.generations.discovered({kTwoHosts[0], kTwoHosts[1], {"c", "", 1}}, job.now());
  job.generations.prepared(job.hosts.host(2), job.now());
  job.generations.ended(0, 1, "rank 0 exited with code 1", job.now());
  job.generations.ended(4, 1, "process 4 exited with code 1", job.now());
  CHECK(job.restarts == 0);
  job.wait(3.6);
  CHECK(job.restarts == 1);
  CHECK(job.said.back().find("rank 0 exited with code 1; it is started again") == 0);
}

TEST_CASE("a rank that fails before the others enter elastic.run costs them its host alone") {
  TrainingJob job(of_program());
  job.generations.ended(0, 1, "rank 0 exited with code 1", job.now());
  job.generations.takes_part(job.now());
  job.wait(3.6);
  CHECK(job.restarts == 0);
  CHECK(job.ended == std::vector<int>{0});
  CHECK(job.losses == std::vector<std::string>{"0: rank 0 exited with code 1"});
  job.ask({2, 3});
  CHECK(job.ranks() == "2 3");
}

TEST_CASE("a rank that asks for its place after another one has done its work stays a rank") {
  RecordedJob job(of_program());
  job.begin(kTwoHosts);
  CHECK(job.generations.ended(0, 0, "", job.now()));
  job.ask({1});
  CHECK(job.hosts.generation() == 0);
  CHECK_FALSE(job.generations.ended(2, 7, "rank 2 exited with code 7", job.now()));
  CHECK(job.exit_code == 7);
}

TEST_CASE("a host that is lost after a rank has done its work fails the job") {
  RecordedJob job(of_program());
  job.begin(kTwoHosts);
  CHECK(job.generations.ended(0, 0, "", job.now()));
  CHECK_FALSE(job.generations.host_lost(job.hosts.host(1), "host b was lost", job.now()));
  CHECK(job.restarts == 0);
}

TEST_CASE("a lost host starts a program again, and does not count as its failure") {
  RecordedJob job(of_program());
  job.begin(kTwoHosts);
  job.generations.host_lost(job.hosts.host(1), "host b was lost", job.now());
  CHECK(job.restarts == 1);
  CHECK(job.history.restarts == 0);
}

TEST_CASE(
    "a program grows when a new host is prepared and its ranks had time to enter elastic.run") {
  RecordedJob job(of_program());
  job.begin({kTwoHosts[0]});
  job.generations.discovered(kTwoHosts, job.now());
  CHECK(job.started == std::vector<std::string>{"b:2"});
  job.generations.prepared(job.hosts.host(1), job.now());
  CHECK(job.begun.empty());  // the processes of this program would not wait
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
  job.generations.start_failed(job.hosts.host(1), "host b: connect: refused", job.now());
  CHECK(job.restarts == 0);
}

TEST_CASE("hosts that leave start a program again at once when it runs for long") {
  RecordedJob job(of_program());
  job.begin(kTwoHosts);
  job.wait(60);
  job.generations.discovered({kTwoHosts[1]}, job.now());
  CHECK(job.restarts == 1);
  CHECK(job.ended.empty());  // the ranks may save their state
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
  leaving.generations.host_leaves(leaving.hosts.host(1), "its agent got signal 15", 30,
                                  leaving.now());
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
  job.generations.prepared(job.hosts.host(1), job.now());
  job.wait(10);
  job.generations.start_failed(job.hosts.host(1), "host b was lost: its agent was killed",
                               job.now());
  CHECK(job.said.back().find("the job goes on without it, and tries it again in 5 s") !=
        std::string::npos);
  job.wait(19);  // after the time at which the ranks would have restarted
  CHECK(job.restarts == 0);
  CHECK(job.started == std::vector<std::string>{"b:2", "b:2"});
}

TEST_CASE("a program that calls hvd.init alone is started again as well") {
  TrainingJob job(of_program());
  CHECK(job.ranks() == "0+ 1+ 2+ 3+");
  job.generations.ended(2, 137, "rank 2 was killed", job.now());
  CHECK(job.restarts == 1);
}

TEST_CASE("a rank that has entered elastic.run keeps all processes") {
  RecordedJob job(of_program());
  job.begin({kTwoHosts[0]});
  job.generations.discovered(kTwoHosts, job.now());
  job.generations.prepared(job.hosts.host(1), job.now());
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
  limits.hosts = HostSource::kNamed;
  RecordedJob job(limits);
  job.begin(kTwoHosts);
  job.generations.ended(2, 137, "rank 2 was killed", job.now());
  CHECK(job.exit_code == 137);
  CHECK(job.end.find("its hosts have slots for 2") != std::string::npos);
}

}  // namespace
}  // namespace hvd::launcher
