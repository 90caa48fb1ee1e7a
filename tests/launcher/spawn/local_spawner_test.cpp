#include <doctest/doctest.h>

#include "conformance/spawner_conformance.h"
#include "launcher/spawn/command_spawner.h"

namespace hvd::launcher {
namespace {

TEST_CASE("the local spawner does what a spawner owes") {
  net::asio::io_context loop(1);
  LocalSpawner spawner;
  SpawnTarget target;
  target.host = "localhost";
  check_spawner(loop, spawner, target);
}

TEST_CASE("stages have names") {
  CHECK(to_string(SpawnStage::kResolve) == "resolve");
  CHECK(to_string(SpawnStage::kSendAgent) == "send agent");
}

}  // namespace
}  // namespace hvd::launcher
