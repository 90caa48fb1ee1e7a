// The conformance suites for the built-in controller and op, and for the tests' controllers and ops.
#include <doctest/doctest.h>

#include "conformance/controller_conformance.h"
#include "conformance/op_conformance.h"
#include "runtime/memory_world.h"

extern "C" {
const hvd_plugin* hvd_builtin_controller_tcp(void);
const hvd_plugin* hvd_builtin_op_cpu(void);
}

namespace {

// Only the end of a process can simulate a lost rank; see mesh_test.
const hvd::test::PluginLinks kBuiltin{hvd_builtin_controller_tcp(), hvd_builtin_op_cpu(), {}, {}};

// Numbers machines in the order of their first rank.
std::vector<int32_t> numbered_hosts(const std::vector<int32_t>& machines) {
  std::vector<int32_t> known, hosts;
  for (const int32_t machine : machines) {
    const auto found = std::find(known.begin(), known.end(), machine);
    hosts.push_back(static_cast<int32_t>(found - known.begin()));
    if (found == known.end()) known.push_back(machine);
  }
  return hosts;
}

using hvd::test::MemoryWorld;
const hvd::test::PluginLinks kMemory{
    hvd::test::memory_controller(), hvd::test::memory_op(),
    [](hvd::test::PluginStore& store, const std::vector<int32_t>& machines) {
      const auto world = std::make_shared<MemoryWorld>(numbered_hosts(machines));
      store.values[MemoryWorld::kKey] = world->address();
      store.kept = world;
    },
    [](hvd::test::PluginStore& store, int32_t rank) {
      static_cast<MemoryWorld*>(store.kept.get())->lose(rank);
    }};

}  // namespace

HVD_CONTROLLER_CONFORMANCE("tcp", kBuiltin)
HVD_OP_CONFORMANCE("cpu", kBuiltin)
HVD_CONTROLLER_CONFORMANCE("memory controller", kMemory)
HVD_OP_CONFORMANCE("memory operations", kMemory)
