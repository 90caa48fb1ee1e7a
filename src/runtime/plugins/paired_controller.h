// Combines two controllers into one: a controller that the user chose carries the messages, and the
// built-in controller keeps the links for the data of the built-in operations. The start of the
// runtime calls it.
#pragma once

#include "runtime/plugins/opened_plugin.h"

namespace hvd::runtime {

// Both are opened by the same host, `data` first. `data` decides which ranks share a host.
OpenedPlugin pair_controllers(OpenedPlugin messages, OpenedPlugin data);

// The rank whose loss made a controller fail; -1 where it names none.
int32_t lost_rank_of(const OpenedPlugin& controller);
// Fails every link of a controller for this cause, whose lost rank peers get too.
void abort_links(const OpenedPlugin& controller, const Status& cause);

}  // namespace hvd::runtime
