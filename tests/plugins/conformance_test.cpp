// The conformance suites for the built-in controller and operations.
#include <doctest/doctest.h>

#include "conformance/controller_conformance.h"
#include "conformance/op_conformance.h"

extern "C" {
const hvd_plugin* hvd_builtin_controller_tcp(void);
const hvd_plugin* hvd_builtin_op_cpu(void);
}

namespace {

// Losing a rank takes the end of its process; see mesh_test.
const hvd::test::PluginLinks kBuiltin{hvd_builtin_controller_tcp(), hvd_builtin_op_cpu(), {}, {}};

}  // namespace

HVD_CONTROLLER_CONFORMANCE("tcp", kBuiltin)
HVD_OP_CONFORMANCE("cpu", kBuiltin)
