#include "launcher/protocol/host_signs.h"

#include <doctest/doctest.h>

namespace hvd::launcher {

TEST_CASE("Signs and places of ranks arrive as they were sent, and no part of them is taken") {
  const std::string signs =
      encode(std::vector<RankSigns>{{3, 1, 0, 5, 6, 7, 8, 9, 10, 11, 12}, {.rank = 4}});
  const auto read = decode_signs(signs);
  REQUIRE(read.ok());
  REQUIRE(read->size() == 2);
  CHECK((*read)[0].rank == 3);
  CHECK((*read)[0].socket_bytes == 12);
  const std::string places = encode(
      std::vector<RankPlace>{{3, 0, 1, "MPI", "bcast", "f", "train.py:8", "sleeping", 1ull << 60}});
  const auto place = decode_places(places);
  REQUIRE(place.ok());
  CHECK((*place)[0].operation == "bcast");
  CHECK((*place)[0].frames == 1ull << 60);
  for (size_t size = 0; size < signs.size(); ++size)
    CHECK_FALSE(decode_signs(signs.substr(0, size)).ok());
  for (size_t size = 0; size < places.size(); ++size)
    CHECK_FALSE(decode_places(places.substr(0, size)).ok());
}

TEST_CASE("a text that is too long is refused") {
  CHECK_FALSE(
      decode_places(encode(std::vector<RankPlace>{{.state = std::string(kMostPlaceText + 1, 'x')}}))
          .ok());
}

}  // namespace hvd::launcher
