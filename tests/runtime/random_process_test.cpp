// Random programs on real processes: one start, many programs.
// HVD_PROGRAMS gives their number, HVD_SEED the first seed.
#include <doctest/doctest.h>

#include "base/settings.h"
#include "base/text.h"
#include "runtime/processes.h"

using hvd::cat;

namespace {

unsigned number_from(const char* variable, unsigned otherwise) {
  const auto text = hvd::environment_variable(variable);
  return text ? static_cast<unsigned>(hvd::parse_int(*text).value_or(otherwise)) : otherwise;
}

void check_world(unsigned first, unsigned count, const std::vector<int>& machines) {
  CAPTURE(first);
  const auto size = static_cast<int>(machines.size());
  const auto outcomes =
      hvd::test::run(size, {HVD_TEST_WORKER, {cat(first), cat(count)}, true, machines});
  for (const auto& outcome : outcomes) {
    CHECK(outcome.code() == 0);
    CHECK(outcome.output == outcomes[0].output);
  }
}

}  // namespace

TEST_CASE("hundreds of random programs come out right on real processes") {
  const unsigned first = number_from("HVD_SEED", 1) * 1000;
  const unsigned count = number_from("HVD_PROGRAMS", HVD_TEST_PROGRAMS) / 4;
  SUBCASE("two on one machine") { check_world(first, count, {0, 0}); }
  SUBCASE("four on one machine") { check_world(first + 250, count, {0, 0, 0, 0}); }
  SUBCASE("two that share no memory") { check_world(first + 500, count, {0, 1}); }
  SUBCASE("five on three machines") { check_world(first + 750, count, {0, 0, 1, 2, 1}); }
}
