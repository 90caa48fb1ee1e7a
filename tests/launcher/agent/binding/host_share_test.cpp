#include "launcher/agent/binding/host_share.h"

#include <doctest/doctest.h>
#include <sched.h>

#include "base/text.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

uint32_t share(size_t ranks, double cores, const Environment& environment = {}) {
  HostJob job;
  job.ranks.resize(ranks);
  return thread_share(job, environment, cores);
}

}  // namespace

TEST_CASE("Ranks of a host divide its cores, and each has one at least") {
  CHECK(share(4, 64) == 16);
  CHECK(share(3, 8) == 2);
  CHECK(share(100, 2) == 1);
  CHECK(share(2, 0.5) == 1);
}

TEST_CASE("A rank that has a host for itself gets no number") { CHECK(share(1, 64) == 0); }

TEST_CASE("A number that the user chose for any of the libraries stays alone") {
  for (const char* variable : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    CHECK(share(2, 8, {{variable, "3"}}) == 0);
    CHECK(share(2, 8, {{variable, ""}}) == 0);
  }
  CHECK(share(2, 8, {{"OMP_PLACES", "cores"}}) == 4);
}

TEST_CASE("--no-omp-default leaves the number to the libraries") {
  CHECK(share(2, 8, {{"HOROVOD_OMP_DEFAULT", "0"}}) == 0);
  CHECK(share(2, 8, {{"HOROVOD_OMP_DEFAULT", "1"}}) == 4);
}

TEST_CASE("A core is reserved until its descriptor is closed") {
  constexpr int kNoCpu = 9000;
  UniqueFd mine = reserve_core(kNoCpu);
  CHECK(mine.get() >= 0);
  CHECK(reserve_core(kNoCpu).get() < 0);
  mine.reset();
  CHECK(reserve_core(kNoCpu).get() >= 0);
}

TEST_CASE("A process takes its CPUs, and refuses those that it may not use") {
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  RankShare share;
  CHECK(apply_share(share));
  share.cpus.resize(16);
  CHECK_FALSE(apply_share(share));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  share.cpus[static_cast<size_t>(first) / 64] = 1UL << (first % 64);
  CHECK(apply_share(share));
  cpu_set_t now;
  REQUIRE(::sched_getaffinity(0, sizeof now, &now) == 0);
  CHECK((CPU_COUNT(&now) == 1 && CPU_ISSET(first, &now)));
  REQUIRE(::sched_setaffinity(0, sizeof before, &before) == 0);
}

TEST_CASE(
    "Without a binding, ranks get the threads alone, and with a report their CPUs are named") {
  HostJob job;
  job.ranks.resize(2);
  job.command = {"true"};
  const HostShare share = share_host(job, {}, {});
  REQUIRE(share.status.ok());
  for (const RankShare& rank : share.ranks) {
    CHECK(rank.environment == Environment{{"OMP_NUM_THREADS", cat(share.threads)}});
    CHECK((rank.cpus.empty() && rank.nodes.empty()));
  }
  CHECK(value_of(share.facts, kBindings).empty());
  const HostShare reported = share_host(job, {{"HOROVOD_REPORT_BINDINGS", "1"}}, {});
  CHECK(value_of(reported.facts, kBindings).starts_with("not bound, cpus "));
}

TEST_CASE("A launcher that binds its own processes is not bound") {
  HostJob job;
  job.ranks.resize(1);
  job.command = {"/usr/bin/python3", "-m", "torch.distributed.run", "train.py"};
  const HostShare share = share_host(job, {{"HOROVOD_BIND_TO", "core"}}, {});
  CHECK(share.ranks[0].cpus.empty());
  CHECK(value_of(share.facts, kBindingRemark).find("is not bound, because it binds") !=
        std::string::npos);
}
