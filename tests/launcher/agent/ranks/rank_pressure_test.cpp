#include "launcher/agent/ranks/rank_pressure.h"

#include <doctest/doctest.h>

namespace hvd::launcher {

TEST_CASE("a host has processors, and a process without a quota is not stopped by one") {
  CHECK(host_pressure().processors > 0);
  CHECK(throttled_microseconds(1 << 30) == 0);
}

}  // namespace hvd::launcher
