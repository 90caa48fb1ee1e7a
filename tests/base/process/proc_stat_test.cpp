#include <doctest/doctest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/proc_file.h"

using namespace hvd;

TEST_CASE("the fields behind a name with blanks and brackets are those of the process") {
  char before[16];
  ::prctl(PR_GET_NAME, before);
  ::prctl(PR_SET_NAME, "a) Z 1 (b");
  const auto stat = ProcStat::of(::getpid());
  ::prctl(PR_SET_NAME, before);
  REQUIRE(stat);
  CHECK(stat->name() == "a) Z 1 (b");
  CHECK(stat->state() == 'R');
  CHECK((*stat)[StatField::kParent] == ::getppid());
  CHECK((*stat)[StatField::kThreads] >= 1);
  CHECK((*stat)[StatField::kStart] > 0);
}

TEST_CASE("a process that does not exist has no fields") {
  CHECK_FALSE(ProcStat::of(0));
  CHECK_FALSE(ProcStat::read("/proc/self/task/"));
}
