// Jobs whose ranks may be Horovod's own workers.
#include <doctest/doctest.h>

#include "launcher/elastic/generations.h"
#include "tests/launcher/elastic/recorded_job.h"

namespace hvd::launcher {
namespace {

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

}  // namespace
}  // namespace hvd::launcher
