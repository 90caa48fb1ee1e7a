#include "collectives/shm/shared_region.h"

#include <doctest/doctest.h>

#include <string>

using hvd::collectives::kSubRegions;
using hvd::collectives::MemoryMap;
using hvd::collectives::SharedRegion;

TEST_CASE("a host has room for 256 groups, and for one more after one has gone") {
  MemoryMap map;
  auto region = SharedRegion::create(1, 64 << 10, map);
  REQUIRE(region.ok());
  const auto make = [&](uint64_t key) { return (*region)->make_sub_region(key, 4096, 1); };
  CHECK(kSubRegions == 256);
  for (uint64_t key = 1; key <= kSubRegions; ++key) REQUIRE(make(key).ok());
  const hvd::Status status = make(kSubRegions + 1);
  CHECK(status.message() ==
        "more than 256 process sets and groups at once share memory on this host; remove some");
  const auto index = (*region)->find_sub_region(70);
  REQUIRE(index.ok());
  const auto memory = (*region)->map_sub_region(*index, 4096);
  REQUIRE(memory.ok());
  (*region)->release_sub_region(*index, *memory, 4096);
  CHECK(make(kSubRegions + 1).ok());
}
