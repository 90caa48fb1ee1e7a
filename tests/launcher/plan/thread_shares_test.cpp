#include "launcher/plan/thread_shares.h"

#include <doctest/doctest.h>

namespace hvd::launcher {

TEST_CASE("hosts with the same number of threads are named once, by none of their names") {
  const std::string said = describe_thread_shares({"a", "b"}, {2, 2});
  CHECK(said.starts_with("each rank gets OMP_NUM_THREADS=2, "));
  CHECK(said.find("--no-omp-default") != std::string::npos);
}

TEST_CASE("hosts that differ are named in the one sentence, some of many") {
  CHECK(describe_thread_shares({"a", "b", "c"}, {2, 1, 2})
            .starts_with("ranks get OMP_NUM_THREADS=1 on b; 2 on a, c, "));
  CHECK(
      describe_thread_shares({"a", "b"}, {0, 1}).starts_with("ranks get OMP_NUM_THREADS=1 on b, "));
  CHECK(describe_thread_shares({"a", "b", "c", "d", "e", "f"}, {1, 1, 1, 1, 1, 0})
            .starts_with("ranks get OMP_NUM_THREADS=1 on a, b, c and 2 more, "));
}

TEST_CASE("hosts whose processes are bound to fewer cores than ranks are named") {
  CHECK(describe_binding({}).empty());
  const std::string said = describe_binding({{"a", "1 of 8"}, {"b", "2 of 4"}});
  CHECK_MESSAGE(said.starts_with("ranks share 1 of 8 cores on a, 2 of 4 cores on b: "), said);
}

TEST_CASE("nothing is said where nothing is set") {
  CHECK(describe_thread_shares({"a", "b"}, {0, 0}).empty());
}

}  // namespace hvd::launcher
