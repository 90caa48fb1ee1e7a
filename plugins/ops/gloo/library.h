// Makes a Gloo context in which every member of a process set has a connection to every other member.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <memory>
#include <string>

#include "base/result.h"
#include "horovod/plugin.h"

namespace hvd::ops::gloo_backend {

// Binds to HOROVOD_GLOO_IFACE; else to loopback if all ranks are on this host, else to the host name's address.
std::shared_ptr<::gloo::transport::Device> make_device(const hvd_plugin_host& host,
                                                       const hvd_plugin_config& config);

// Blocks until all members are connected. `name` must be equal on all members and unique for each mesh. Throws Gloo's
// exceptions.
Result<std::shared_ptr<::gloo::Context>> connect(const hvd_plugin_host& host,
                                                 std::shared_ptr<::gloo::transport::Device> device,
                                                 const std::string& name, int index, int size,
                                                 bool is_everyone, double timeout_seconds);

// Ends all calls on a context from connect(), including calls in progress and calls of other members that
// wait for this member. Any thread.
void interrupt(::gloo::Context& context);

}  // namespace hvd::ops::gloo_backend
