#include "base/cores.h"

#include <doctest/doctest.h>

using namespace hvd;

TEST_CASE("A cgroup's quota may be a fraction of a core, or no limit") {
  CHECK(cores_of_cpu_max("50000 100000\n") == 0.5);
  CHECK(cores_of_cpu_max("max 100000\n") > 1000);
  CHECK(cores_of_cpu_max("") > 1000);
  CHECK(cores_of_cpu_max("0 x") > 1000);
}

TEST_CASE("The folders of a cgroup and of those above it are found, in v2 and in v1") {
  using Folders = std::vector<std::string>;
  CHECK(cgroup_folders("0::/job/step\n", "cpu") ==
        Folders{"/sys/fs/cgroup/job/step", "/sys/fs/cgroup/job", "/sys/fs/cgroup"});
  const char* const both = "12:memory:/m:n\n4:cpu,cpuacct:/docker/1\n0::/x\n";
  CHECK(cgroup_folders(both, "cpu") ==
        Folders{"/sys/fs/cgroup/cpu/docker/1", "/sys/fs/cgroup/cpu/docker", "/sys/fs/cgroup/cpu"});
  CHECK(cgroup_folders("4:cpuacct,cpu:/x\n", "cpu") ==
        Folders{"/sys/fs/cgroup/cpu/x", "/sys/fs/cgroup/cpu"});
  CHECK(cgroup_folders(both, "memory") ==
        Folders{"/sys/fs/cgroup/memory/m:n", "/sys/fs/cgroup/memory"});
  CHECK(cgroup_folders("0::/\n", "memory") == Folders{"/sys/fs/cgroup"});
  CHECK(cgroup_folders("", "cpu").empty());
  CHECK(cgroup_folders("1:name=systemd:/a\n", "cpu").empty());
}

TEST_CASE("The cores of this process are at most those of its affinity mask") {
  CHECK(available_cores() > 0);
  CHECK(available_cores() <= affinity_cores());
}
