#include "launcher/agent/ranks/thread_share.h"

#include <doctest/doctest.h>

using hvd::Environment;
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
