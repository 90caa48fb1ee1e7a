#include "launcher/agent/ranks/process_limits.h"

#include <doctest/doctest.h>

namespace hvd::launcher {

TEST_CASE("limits that differ from those of this process are read, with the umask") {
  const ProcessLimits read = read_process_limits(
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max cpu time              12                   unlimited            seconds   \n"
      "Max open files            300                  4000                 files     \n"
      "Name:\tcat\nUmask:\t0027\n");
  REQUIRE(read.limits.size() == 2);
  CHECK(limit_of(read, RLIMIT_CPU).rlim_cur == 12);
  CHECK(limit_of(read, RLIMIT_CPU).rlim_max == RLIM_INFINITY);
  CHECK(limit_of(read, RLIMIT_NOFILE).rlim_max == 4000);
  CHECK(read.umask == mode_t{027});
  rlimit own{};
  REQUIRE(::getrlimit(RLIMIT_STACK, &own) == 0);
  CHECK(limit_of(read, RLIMIT_STACK).rlim_cur == own.rlim_cur);
}

TEST_CASE("other text changes no limit") {
  for (const char* text :
       {"", "Max cpu time", "Max cpu time 12", "Max cpu time -1 2", "Max cpu time 1x 2",
        "Max cpu time 99999999999999999999 1", "Umask:", "Umask: 9", "Umask:\t-1", "\n\nUmask"}) {
    const ProcessLimits read = read_process_limits(text);
    CHECK_MESSAGE(read.limits.empty(), text);
    CHECK_MESSAGE(!read.umask, text);
  }
}

}  // namespace hvd::launcher
