// Messages by a controller that the user has chosen, while the built-in operations' data go by the
// links of the built-in one: the two as one controller.
#pragma once

#include "runtime/plugins/opened_plugin.h"

namespace hvd::runtime {

// Both are opened by the same host, `data` first. `data` decides which ranks share a host.
OpenedPlugin pair_controllers(OpenedPlugin messages, OpenedPlugin data);

}  // namespace hvd::runtime
