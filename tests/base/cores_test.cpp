#include "base/cores.h"

#include <doctest/doctest.h>

using namespace hvd;

TEST_CASE("A cgroup's quota may be a fraction of a core, or no limit") {
  CHECK(cores_of_cpu_max("50000 100000\n") == 0.5);
  CHECK(cores_of_cpu_max("max 100000\n") > 1000);
  CHECK(cores_of_cpu_max("") > 1000);
  CHECK(cores_of_cpu_max("0 x") > 1000);
}

TEST_CASE("The cores of this process are at most those of its affinity mask") {
  CHECK(available_cores() > 0);
  CHECK(available_cores() <= affinity_cores());
}
