#include "collectives/shm/shared_region.h"

#include <doctest/doctest.h>

#include <string>

#include "file_limit.h"

using hvd::collectives::MemoryMap;
using hvd::collectives::SharedRegion;
using hvd::test::FileLimit;

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
  // The failed call has freed its space: many more groups get the same error.
  for (int more = 0; more < 100; ++more) {
    CHECK((*region)->make_sub_region(++key, 4096, 1).code() == hvd::Code::kUnavailable);
    CHECK(!(*region)->find_sub_region(key).ok());
  }
}

TEST_CASE("a limit of file sizes leaves room for fewer groups, and a small one is an error") {
  MemoryMap map;
  {
    const FileLimit limit(2 << 20);
    auto region = SharedRegion::create(1, 64 << 10, map);
    REQUIRE(region.ok());
    uint64_t key = 1;
    while ((*region)->make_sub_region(key, 64 << 10, 1).ok()) ++key;
    const auto found = (*region)->find_sub_region(key);
    const std::string rooms = std::to_string(key - 1);
    CHECK(found.status().message() ==
          "more than " + rooms +
              " process sets and groups at once share memory on this host; remove some, or "
              "raise the limit of file sizes (ulimit -f)");
    CHECK(key > 8);
    CHECK(key < 33);
  }
  const FileLimit limit(300 << 10);
  const auto region = SharedRegion::create(4, 64 << 10, map);
  REQUIRE(!region.ok());
  const std::string& message = region.status().message();
  CHECK(message.starts_with(
      "the shared memory of the 4 ranks of this host is a file of at least 1 MiB"));
  CHECK(message.ends_with("and the limit of file sizes is 0 MiB; raise it by ulimit -f"));
}
