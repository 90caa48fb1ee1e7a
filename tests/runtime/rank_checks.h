// Common helpers of tests with in-process ranks: jobs over each kind of link, the start of all
// ranks, and frequent operations.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/ranks.h"

// A build without the built-in plugins' folders has only the memory links.
#define FOR_ALL_LINKS(options)                   \
  hvd::test::RanksOptions options;               \
  SUBCASE("over memory links") {}                \
  SUBCASE("over the built-in links") {           \
    if (!hvd::test::has_builtin_links()) return; \
    options.links = hvd::test::Links::kBuiltin;  \
  }

namespace hvd::test {

inline void require_started(const Ranks& ranks) {
  for (const Status& status : ranks.start_status) REQUIRE_MESSAGE(status.ok(), status.message());
}

inline Work sum_of(const std::string& name, std::vector<float> values = {1}) {
  return Work(HVD_ALLREDUCE, name, std::move(values), HVD_FLOAT32);
}

}  // namespace hvd::test
