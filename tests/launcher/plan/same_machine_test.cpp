#include "launcher/plan/same_machine.h"

#include <doctest/doctest.h>

namespace hvd::launcher {

TEST_CASE("hosts on machines of their own, or unknown ones, are not named") {
  CHECK(describe_same_machines({"a", "b"}, {"boot/1/2", "boot/3/4"}).empty());
  CHECK(describe_same_machines({"a", "b"}, {"", ""}).empty());
}

TEST_CASE("one machine under several names is one sentence") {
  const auto sentences = describe_same_machines({"a", "b", "10.0.0.1"}, {"m", "n", "m"});
  REQUIRE(sentences.size() == 1);
  CHECK(sentences[0].starts_with("hosts a and 10.0.0.1 are one machine: "));
}

}  // namespace hvd::launcher
