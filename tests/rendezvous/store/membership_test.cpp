#include "rendezvous/store/membership.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace hvd::rendezvous {

TEST_CASE("ranks of a host are neighbours, hosts keep the order of their first worker") {
  const auto places = number_places(std::vector<std::string>{"a", "b", "a"});
  CHECK(places[0] == Place{0, 3, 0, 2, 0, 2, 0});
  CHECK(places[1] == Place{2, 3, 0, 1, 1, 2, 0});
  // Only host a has a second rank.
  CHECK(places[2] == Place{1, 3, 1, 2, 0, 1, 0});
}

TEST_CASE("cross ranks skip hosts that have no such local rank") {
  const auto places = number_places(std::vector<std::string>{"a", "a", "b", "c", "c"});
  CHECK(places[1].cross_rank == 0);
  CHECK(places[4].local_rank == 1);
  CHECK(places[4].cross_rank == 1);
  CHECK(places[4].cross_size == 2);
  CHECK(places[3].cross_rank == 2);
}

TEST_CASE("everybody gets a place when the last one comes, and the same one again later") {
  Membership membership(2);
  uint64_t ticket = 0;
  std::vector<Place> told;
  const auto remember = [&](const Result<Place>& place) { told.push_back(*place); };
  CHECK_FALSE(membership.join("w1", "a", remember, ticket)->has_value());
  const auto last = membership.join("w2", "b", remember, ticket);
  REQUIRE(last.ok());
  CHECK((*last)->rank == 1);
  REQUIRE(told.size() == 1);
  CHECK(told[0].rank == 0);
  CHECK((*membership.join("w1", "a", remember, ticket))->rank == 0);
  CHECK(membership.join("w3", "a", remember, ticket).status().code() == Code::kFailedPrecondition);
  membership.withdraw("w1", 1);
  CHECK((*membership.join("w1", "a", remember, ticket))->rank == 0);
}

TEST_CASE("a worker that gave up is not counted; one that came back on a new connection once") {
  Membership membership(3);
  uint64_t first = 0, second = 0, other = 0;
  int taken_over = 0;
  const auto ignore = [](const Result<Place>&) {};
  REQUIRE(membership
              .join(
                  "w1", "a",
                  [&](const Result<Place>& place) {
                    taken_over += place.status().code() == Code::kAborted;
                  },
                  first)
              .ok());
  REQUIRE(membership.join("w1", "a", ignore, second).ok());
  CHECK(taken_over == 1);
  membership.withdraw("w1", first);
  CHECK(membership.describe() == "1 of 3 workers are there (a: 1), 2 are missing");
  REQUIRE(membership.join("w2", "b", ignore, other).ok());
  membership.withdraw("w1", second);
  CHECK(membership.describe() == "1 of 3 workers are there (b: 1), 2 are missing");
}

TEST_CASE("a server without a size hands out no ranks and says what to do") {
  Membership membership(0);
  uint64_t ticket = 0;
  const auto place = membership.join(
      "w", "a", [](const Result<Place>&) {}, ticket);
  CHECK(place.status().message().find("HOROVOD_RANK") != std::string::npos);
}

}  // namespace hvd::rendezvous
