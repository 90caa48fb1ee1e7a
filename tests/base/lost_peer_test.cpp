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

TEST_CASE("both ends of a broken connection make the same sentence, and each blames the other") {
  const LinkEnd low{2, "a"}, high{10, "b"};
  const Status one = broken_link(low, high, "was reset");
  const Status other = broken_link(high, low, "was reset");
  CHECK(one.code() == Code::kAborted);
  CHECK(one.message() == "the connection between rank 2 on host a and rank 10 on host b was reset");
  CHECK(other.message() == one.message());
  CHECK(one.lost_rank() == 10);
  CHECK(other.lost_rank() == 2);
  CHECK(broken_link_in(one.with_context("rank 2")) == one.message());
  CHECK(broken_link_in(lost_peer(2, "a", "its process ended")).empty());
  CHECK(cause_in(one.with_context("rank 2")) == one.message());
  CHECK(cause_in(lost_peer(2, "a", "its process ended")).empty());
  const Status stall = stalled_by(3, "'x'", "4.1 s for rank 3 on host b, which does not answer");
  CHECK(stall.lost_rank() == 3);
  CHECK(cause_in(stall) == "'x' has waited 4.1 s for rank 3 on host b, which does not answer");
  CHECK(cause_in(stall.with_context("rank 2")) == stall.message());
  CHECK(broken_link_in(stall).empty());
  for (const Status& shared : {one, other}) {
    CHECK(lost_rank_for(2, shared) == 10);
    CHECK(lost_rank_for(10, shared) == 2);
    CHECK(lost_rank_for(5, shared) == shared.lost_rank());
  }
  CHECK(lost_rank_for(2, lost_peer(2, "a", "its process ended")) == 2);
  CHECK(lost_rank_for(2, Status()) == -1);
}

TEST_CASE("an error of the start names another rank by its place") {
  CHECK(other_rank_in("cannot read from rank 0 on host a: Connection reset by peer", 2) == 0);
  CHECK(other_rank_in("rank 2 on host a cannot reach rank 13 on host b", 2) == 13);
  CHECK(other_rank_in("rank 2 on host a", 2) == -1);
  CHECK(other_rank_in("rank 3; rank on host a; rank 99999999999 on host b; rank", 2) == -1);
  CHECK(other_rank_in("", 2) == -1);
}

TEST_CASE("a failure names a lost rank only where it was given one") {
  const Status told = aborted("rank 31 on host b was lost: its process ended");
  CHECK(told.lost_rank() == -1);
  CHECK(told.with_lost_rank(7).lost_rank() == 7);
  CHECK(told.with_lost_rank(7).with_lost_rank(-1).lost_rank() == -1);
  CHECK(Status().with_lost_rank(7).ok());
  CHECK(Status().lost_rank() == -1);
}
