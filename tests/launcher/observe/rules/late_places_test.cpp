#include <doctest/doctest.h>

#include "launcher/observe/rules/straggler_cause.h"

namespace hvd::launcher {

TEST_CASE("the line in which a late rank was most often is named, and no wait for others is") {
  LatePlaces places;
  CHECK(places.line_of({3}).line.empty());
  const RankPlace reading{.function = "read_shard", .line = "loader.py:30"};
  const RankPlace computing{.function = "forward", .line = "model.py:8"};
  const RankPlace waiting{.is_collective = 1, .function = "step", .line = "train.py:88"};
  for (int i = 0; i < 5; ++i) places.take(3, reading);
  for (int i = 0; i < 4; ++i) places.take(3, waiting);
  places.take(3, computing);
  places.take(3, {});
  places.take(2, computing);
  const LateLine line = places.line_of({3});
  CHECK((line.line == "read_shard, loader.py:30" && line.samples == 5 && line.of == 10));
  CHECK(places.line_of({2}).line.empty());
  for (int i = 0; i < 10; ++i) places.take(3, waiting);
  CHECK(places.line_of({3}).line.empty());
  places.clear();
  CHECK(places.line_of({3}).line.empty());
}

}  // namespace hvd::launcher
