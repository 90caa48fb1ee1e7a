// The conformance suites for an engine in a shared object, HVD_ENGINE, with the built-in controller or
// that of another shared object, HVD_CONTROLLER, where each process is a rank.
// tests/e2e/engines_test.py starts the processes.
#include <doctest/doctest.h>

#include <cstdlib>

#include "conformance/controller_conformance.h"
#include "conformance/op_conformance.h"
#include "plugin/library.h"

extern "C" {
const hvd_plugin* hvd_builtin_controller_tcp(void);
}

namespace {

const hvd_plugin* file_of(const char* variable) {
  const char* path = std::getenv(variable);
  REQUIRE(path != nullptr);
  const auto loaded = hvd::plugin::load(path);
  CHECK_MESSAGE(loaded.ok(), loaded.status().message());
  REQUIRE(loaded.ok());
  return loaded.value();
}

const hvd_plugin* controller() {
  return std::getenv("HVD_CONTROLLER") == nullptr ? hvd_builtin_controller_tcp()
                                                  : file_of("HVD_CONTROLLER");
}

const hvd::test::PluginLinks& links() {
  static hvd::test::ProcessWorld processes;
  static const hvd::test::PluginLinks kLinks{controller(), file_of("HVD_ENGINE"), {}, {},
                                             &processes};
  if (processes.worlds == 0) {
    // A library may start only in all processes together.
    hvd::test::run_plugin_world(kLinks, std::vector<int32_t>(static_cast<size_t>(processes.size)),
                                [](hvd::test::PluginRank&) {});
  }
  return kLinks;
}

}  // namespace

HVD_CONTROLLER_CONFORMANCE("controller", links())
HVD_OP_CONFORMANCE("engine", links())
