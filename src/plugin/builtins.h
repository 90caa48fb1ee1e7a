// The plugins that are linked into libhorovod itself. The only place that knows their names; the
// rest of the program meets them as records of the catalogue. The list is generated from the
// plugin folders that are built: a folder that is gone is a plugin that is gone.
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

// Static storage; in no particular order.
std::span<const hvd_plugin* const> builtins();

}  // namespace hvd::plugin
