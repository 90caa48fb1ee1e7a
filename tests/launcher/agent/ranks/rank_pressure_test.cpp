#include "launcher/agent/ranks/rank_pressure.h"

#include <doctest/doctest.h>

namespace hvd::launcher {

TEST_CASE("the CPU statistics of a cgroup and of those above it are found, in v2 and in v1") {
  using Files = std::vector<std::string>;
  CHECK(cpu_stat_files("0::/job/step\n") == Files{"/sys/fs/cgroup/job/step/cpu.stat",
                                                  "/sys/fs/cgroup/job/cpu.stat",
                                                  "/sys/fs/cgroup/cpu.stat"});
  CHECK(cpu_stat_files("12:memory:/m\n4:cpu,cpuacct:/docker/1\n0::/x\n") ==
        Files{"/sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.stat",
              "/sys/fs/cgroup/cpu,cpuacct/docker/cpu.stat", "/sys/fs/cgroup/cpu,cpuacct/cpu.stat"});
  CHECK(cpu_stat_files("0::/pod:1\n") ==
        Files{"/sys/fs/cgroup/pod:1/cpu.stat", "/sys/fs/cgroup/cpu.stat"});
  CHECK(cpu_stat_files("0::/\n") == Files{"/sys/fs/cgroup/cpu.stat"});
  CHECK(cpu_stat_files("").empty());
  CHECK(cpu_stat_files("1:name=systemd:/a\n").empty());
}

TEST_CASE("a host has processors, and a process without a quota is not stopped by one") {
  CHECK(host_pressure().processors > 0);
  CHECK(throttled_microseconds(1 << 30) == 0);
}

}  // namespace hvd::launcher
