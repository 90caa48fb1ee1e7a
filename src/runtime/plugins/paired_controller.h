// Combines two controllers: a controller that the user chose carries the messages, and the built-in
// controller keeps the links for the data of the built-in operations. hvd_init calls
// pair_controllers.
#pragma once

#include "runtime/plugins/plugin_host.h"

namespace hvd::runtime {

// One PluginHost must have opened both controllers, `data` first. `data` decides which ranks share a host.
OpenedPlugin pair_controllers(OpenedPlugin messages, OpenedPlugin data);

// Returns the rank whose loss made a controller fail, or -1 if the controller does not name a rank.
int32_t lost_rank_of(const OpenedPlugin& controller);
// Fails every link of a controller with this cause; peers also receive its lost rank.
void abort_links(const OpenedPlugin& controller, const Status& cause);

}  // namespace hvd::runtime
