#include "launcher/agent/binding/host_share.h"

#include <doctest/doctest.h>
#include <sched.h>

#include "base/text.h"
#include "launcher/protocol/binding_choice.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

HostJob job_of(size_t ranks) {
  HostJob job;
  job.ranks.resize(ranks);
  job.command = {"true"};
  return job;
}

uint32_t share(size_t ranks, double cores, const Environment& environment = {}) {
  HostShare share;
  share.ranks.resize(ranks);
  share_threads(job_of(ranks), environment, cores, share);
  return share.threads;
}

// The listed ones of four GPUs, by their numbers.
std::string listed(const Environment& environment, bool is_nvidia, const Environment& own = {}) {
  std::vector<Gpu> gpus;
  for (int number = 0; number < 4; ++number) gpus.push_back({.address = cat(number)});
  std::string numbers;
  for (const Gpu& gpu : listed_gpus(gpus, environment, own, is_nvidia)) numbers += gpu.address;
  return numbers;
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

TEST_CASE("Beside bound ranks, those that are not bound get their part of the cores alone") {
  HostShare share;
  share.ranks.resize(2);
  share.ranks[0].cpus = {1};
  share_threads(job_of(2), {}, 8, share);
  CHECK(share.threads == 0);
  CHECK(share.ranks[0].environment.empty());
  CHECK(share.ranks[1].environment == Environment{{"OMP_NUM_THREADS", "4"}});
}

TEST_CASE("A list of GPUs counts once, though several variables have it") {
  const Environment both = {{"CUDA_VISIBLE_DEVICES", "2,3"}, {"ROCR_VISIBLE_DEVICES", "2,3"}};
  CHECK(listed({}, true) == "0123");
  CHECK(listed(both, true) == "23");
  CHECK(listed({{"HIP_VISIBLE_DEVICES", "3"}, {"CUDA_VISIBLE_DEVICES", "3"}}, false) == "3");
  // HIP counts what ROCR shows.
  CHECK(listed({{"HIP_VISIBLE_DEVICES", "1"}, {"ROCR_VISIBLE_DEVICES", "2,3"}}, false) == "3");
  const Environment slurm = {{"SLURM_JOB_GPUS", "2,3"}};
  CHECK(listed({}, true, slurm) == "23");
  CHECK(listed(both, true, slurm) == "23");
  CHECK(listed({{"CUDA_VISIBLE_DEVICES", "1"}}, true, slurm) == "3");  // of the job
  CHECK(listed({{"CUDA_VISIBLE_DEVICES", "3"}}, true, slurm) == "3");  // of the host
}

TEST_CASE("A core is reserved until its descriptor is closed") {
  constexpr int kNoCpu = 9000;
  std::vector<UniqueFd> mine, others;
  CHECK(reserve_core(kNoCpu, mine));
  CHECK_FALSE(reserve_core(kNoCpu, others));
  CHECK(others.empty());
  mine.clear();
  CHECK(reserve_core(kNoCpu, others));
  CHECK(others.size() == 1);
}

TEST_CASE("A rank that an agent starts alone gets the CPUs of its local rank") {
  cpu_set_t mask;
  REQUIRE(::sched_getaffinity(0, sizeof mask, &mask) == 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  HostJob job = job_of(1);
  job.ranks[0].environment = {{"HOROVOD_LOCAL_RANK", "1"}, {"HOROVOD_LOCAL_SIZE", "2"}};
  job.environment = {{"HOROVOD_CPU_LIST", cat(cpus.front(), ";", cpus.back())}};
  const HostShare share = share_host(job, {}, {});
  REQUIRE(share.status.ok());
  CHECK(value_of(share.ranks[0].environment, "HOROVOD_BOUND_CPUS") == cat(cpus.back()));
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
  HostJob job = job_of(2);
  // A variable of the host, which is not the job's, binds nothing.
  const HostShare share = share_host(job, {{"HOROVOD_BIND_TO", "core"}}, {});
  REQUIRE(share.status.ok());
  for (const RankShare& rank : share.ranks) {
    CHECK(rank.environment == Environment{{"OMP_NUM_THREADS", cat(share.threads)}});
    CHECK((rank.cpus.empty() && rank.nodes.empty()));
  }
  CHECK(value_of(share.facts, kBindings).empty());
  job.environment = {{"HOROVOD_REPORT_BINDINGS", "1"}};
  const HostShare reported = share_host(job, {}, {});
  CHECK(value_of(reported.facts, kBindings).starts_with("not bound, cpus "));
}

TEST_CASE("A launcher that binds its own processes is not bound") {
  HostJob job = job_of(1);
  job.environment = {{"HOROVOD_BIND_TO", "numa"}};
  const auto is_bound = [&](std::vector<std::string> command) {
    job.command = std::move(command);
    return value_of(share_host(job, {}, {}).facts, kBindingRemark)
               .find("is not bound, because it binds") == std::string_view::npos;
  };
  CHECK_FALSE(is_bound({"/usr/bin/python3", "-m", "torch.distributed.run", "train.py"}));
  CHECK_FALSE(is_bound({"/opt/bin/torchrun", "train.py"}));
  CHECK(is_bound({"python3", "train.py", "--engine", "deepspeed"}));
  CHECK(is_bound({"python3", "-m", "train", "deepspeed"}));
}
