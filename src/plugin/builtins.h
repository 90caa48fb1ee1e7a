// The plugins that are linked into libhorovod. Only this file names these plugins; other code
// finds their records in the catalogue. CMake generates the list from the built plugin folders.
#pragma once

#include <span>

#include "horovod/plugin.h"

extern "C" {
// Messages between ranks by shared memory and TCP (plugins/controllers/tcp).
const hvd_plugin* hvd_builtin_controller_tcp(void);
// Operations on host memory (plugins/ops/cpu).
const hvd_plugin* hvd_builtin_op_cpu(void);
}

namespace hvd::plugin {

// Returns the records, in static storage. The order has no meaning.
std::span<const hvd_plugin* const> builtins();

}  // namespace hvd::plugin
