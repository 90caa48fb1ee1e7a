#include "rendezvous/wire/generation.h"

#include <doctest/doctest.h>

namespace hvd::rendezvous {
namespace {

Result<Generation> read(std::string_view text) { return decode_generation(as_bytes(text)); }

TEST_CASE("the record of a generation is read as it was written") {
  Generation generation;
  generation.number = 7;
  generation.members = {{3, false, "b"}, {9, true, "b"}, {1, false, "host with blanks"}};
  const auto read = decode_generation(encode(generation));
  REQUIRE(read.ok());
  CHECK(read->number == 7);
  REQUIRE(read->members.size() == 3);
  CHECK(read->members[1].process == 9);
  CHECK(read->members[1].is_new);
  CHECK(read->members[2].host == "host with blanks");
  CHECK(read->has_new_members());
}

TEST_CASE("ranks follow the list, local and cross ranks the hosts") {
  Generation generation;
  generation.members = {{3, false, "b"}, {9, true, "b"}, {1, false, "a"}};
  const auto place = place_of(generation, 1);
  REQUIRE(place.ok());
  CHECK(place->rank == 2);
  CHECK(place->size == 3);
  CHECK(place->local_rank == 0);
  CHECK(place->local_size == 1);
  CHECK(place->cross_rank == 1);
  CHECK(place->cross_size == 2);
  CHECK(place_of(generation, 4).status().code() == Code::kNotFound);
}

TEST_CASE("records that cannot be right are refused") {
  const std::string first = "horovod generation 1\n";
  CHECK(read(first + "0\n0 0 a\n").ok());
  for (const char* rest :
       {"", "0\n", "0\n0 0 a", "x\n0 0 a\n", "-1\n0 0 a\n", "0\n0 2 a\n", "0\n0 0\n", "0\n0 0 \n",
        "0\n-1 0 a\n", "0\n0 0 a\n0 0 b\n", "0\n0 0 a\n1 0 b\n2 0 a\n", "0\n4294967296 0 a\n"}) {
    CAPTURE(rest);
    CHECK_FALSE(read(first + rest).ok());
  }
  CHECK_FALSE(read("horovod generation 2\n0\n0 0 a\n").ok());
}

TEST_CASE("a request for a place has two numbers") {
  const auto request = decode_place_request(encode(PlaceRequest{.number = 4, .generation = -1}));
  REQUIRE(request.ok());
  CHECK(request->number == 4);
  CHECK(request->generation == -1);
  for (const char* text : {"", "1", "0 0", "1 -2", "1 0 0", "a 0"}) {
    CAPTURE(text);
    CHECK_FALSE(decode_place_request(as_bytes(text)).ok());
  }
}

}  // namespace
}  // namespace hvd::rendezvous
