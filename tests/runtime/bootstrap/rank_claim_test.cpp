// Tests of ranks named by launchers' variables.
#include "runtime/bootstrap/rank_claim.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <map>

#include "base/secrets/secret.h"

using namespace hvd::runtime;

namespace {

using Environment = std::map<std::string, std::string>;

std::optional<NamedRank> named(const Environment& environment) {
  return named_rank([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  });
}

}  // namespace

TEST_CASE("each launcher names a rank, and different ranks have different keys") {
  for (const Environment& environment : std::vector<Environment>{
           {{"HOROVOD_STORE", "agent:@x"}, {"HOROVOD_RANK", "3"}},
           {{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "a"}, {"HOROVOD_RANK", "3"}},
           {{"PMIX_NAMESPACE", "n"}, {"PMIX_RANK", "3"}},
           {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}, {"SLURM_JOB_ID", "7"}},
           {{"WORLD_SIZE", "4"}, {"RANK", "3"}, {"MASTER_PORT", "29500"}}}) {
    const auto rank = named(environment);
    REQUIRE(rank);
    CHECK(rank->words == "rank 3");
    for (const auto& [name, value] : environment) {
      if (value != "3") continue;
      Environment other = environment;
      other[name] = "2";
      CHECK(named(other)->key != rank->key);
    }
  }
  CHECK(named({{"HOROVOD_STORE", "s"}, {"HOROVOD_ELASTIC_PROCESS", "5"}})->words ==
        "process 5 of the elastic job");
}

TEST_CASE("a claim is held also where refused processes have filled the queue of its socket") {
  const std::string job = hvd::random_hex(8);
  ::setenv("HOROVOD_STORE", job.c_str(), 1);
  ::setenv("HOROVOD_RANK", "3", 1);
  {
    const auto claim = RankClaim::take();
    REQUIRE(claim.ok());
    // Each claim that the server admits leaves a connection.
    hvd::Status refused;
    for (int i = 0; i < 10000 && refused.ok(); ++i) refused = RankClaim::take().status();
    CHECK(refused.message().find("is rank 3 of this job already") != std::string::npos);
  }
  CHECK(RankClaim::take().ok());
  ::unsetenv("HOROVOD_STORE");
  ::unsetenv("HOROVOD_RANK");
}

TEST_CASE("a process that may be one of several worlds of one names no rank") {
  CHECK(!named({}));
  CHECK(!named({{"HOROVOD_STORE", "tcp:a:1"}}));  // a server assigns the rank
  CHECK(!named({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "1"}}));
  CHECK(!named({{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"MASTER_PORT", "29500"}}));
  CHECK(!named({{"HOROVOD_BOOTSTRAP", "none"}, {"PMIX_NAMESPACE", "n"}, {"PMIX_RANK", "3"}}));
}
