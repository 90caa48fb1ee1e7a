#include "base/lost_peer.h"

#include <doctest/doctest.h>

using namespace hvd;

TEST_CASE("the failure that a lost peer causes names its rank, also behind context") {
  const Status status = lost_peer(31, "b.example.org", "its process ended");
  CHECK(status.code() == Code::kAborted);
  CHECK(status.message() == "rank 31 on host b.example.org was lost: its process ended");
  CHECK(status.lost_rank() == 31);
  const Status above = status.with_context("rank 2");
  CHECK(above.message() == "rank 2: rank 31 on host b.example.org was lost: its process ended");
  CHECK(above.lost_rank() == 31);
}

TEST_CASE("a failure names a lost rank only where it was given one") {
  const Status told = aborted("rank 31 on host b was lost: its process ended");
  CHECK(told.lost_rank() == -1);
  CHECK(told.with_lost_rank(7).lost_rank() == 7);
  CHECK(told.with_lost_rank(7).with_lost_rank(-1).lost_rank() == -1);
  CHECK(Status().with_lost_rank(7).ok());
  CHECK(Status().lost_rank() == -1);
}
