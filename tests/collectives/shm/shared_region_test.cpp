#include "collectives/shm/shared_region.h"

#include <doctest/doctest.h>

#include <string>

using hvd::collectives::MemoryMap;
using hvd::collectives::SharedRegion;

TEST_CASE("a host has room for 240 groups, and for one more after one has gone") {
  MemoryMap map;
  auto region = SharedRegion::create(1, 64 << 10, map);
  REQUIRE(region.ok());
  const auto make = [&](uint64_t key) { return (*region)->make_sub_region(key, 4096, 1); };
  constexpr uint64_t kRoom = 240;
  for (uint64_t key = 1; key <= kRoom; ++key) REQUIRE(make(key).ok());
  const std::string message =
      "more than 240 process sets and groups at once share memory on this host; remove some";
  CHECK(make(kRoom + 1).message() == message);
  const auto index = (*region)->find_sub_region(70);
  REQUIRE(index.ok());
  const auto memory = (*region)->map_sub_region(*index, 4096);
  REQUIRE(memory.ok());
  (*region)->release_sub_region(*index, *memory, 4096);
  CHECK(make(kRoom + 2).ok());
}

TEST_CASE("each user of a group finds once that there was no room for it") {
  MemoryMap map;
  auto region = SharedRegion::create(2, 64 << 10, map);
  REQUIRE(region.ok());
  uint64_t key = 1;
  while ((*region)->make_sub_region(key, 4096, 2).ok()) ++key;
  for (int user = 0; user < 2; ++user) {
    const auto found = (*region)->find_sub_region(key);
    CHECK(found.status().message().starts_with("more than 240 process sets"));
  }
  const auto forgotten = (*region)->find_sub_region(key);
  REQUIRE(forgotten.ok());
  CHECK(*forgotten == -1);
  // The place of the refusal is free again: many more groups are refused alike.
  for (int more = 0; more < 100; ++more) {
    CHECK((*region)->make_sub_region(++key, 4096, 1).code() == hvd::Code::kUnavailable);
    CHECK(!(*region)->find_sub_region(key).ok());
  }
}
