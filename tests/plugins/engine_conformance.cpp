// The conformance suite for an engine in a shared object, HVD_ENGINE, where each process is a rank.
// tests/e2e/engines_test.py starts the processes.
#include <doctest/doctest.h>

#include <cstdlib>

#include "conformance/op_conformance.h"
#include "plugin/library.h"

extern "C" {
const hvd_plugin* hvd_builtin_controller_tcp(void);
}

namespace {

const hvd_plugin* engine() {
  const char* path = std::getenv("HVD_ENGINE");
  REQUIRE(path != nullptr);
  const auto loaded = hvd::plugin::load(path);
  CHECK_MESSAGE(loaded.ok(), loaded.status().message());
  REQUIRE(loaded.ok());
  return loaded.value();
}

const hvd::test::PluginLinks& links() {
  static hvd::test::ProcessWorld processes;
  static const hvd::test::PluginLinks kLinks{hvd_builtin_controller_tcp(), engine(), {}, {},
                                             &processes};
  if (processes.worlds == 0) {
    // A library may start only in all processes together.
    hvd::test::run_plugin_world(kLinks, std::vector<int32_t>(static_cast<size_t>(processes.size)),
                                [](hvd::test::PluginRank&) {});
  }
  return kLinks;
}

}  // namespace

HVD_OP_CONFORMANCE("engine", links())
