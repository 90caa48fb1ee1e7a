// Makes a Gloo context in which every member of a process set has a connection to every other member.
// The communicator's thread calls it.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "horovod/plugin.h"

namespace hvd::ops::gloo_backend {

// By HOROVOD_GLOO_IFACE; else the loopback where all ranks are on this host, else the host's name.
std::shared_ptr<::gloo::transport::Device> make_device(const hvd_plugin_host& host,
                                                       const hvd_plugin_config& config);

// Waits for all members. `name` is the same on all of them and good for one mesh. Throws what Gloo
// throws.
Result<std::shared_ptr<::gloo::Context>> connect(const hvd_plugin_host& host,
                                                 std::shared_ptr<::gloo::transport::Device> device,
                                                 const std::string& name, int index, int size,
                                                 bool is_everyone, double timeout_seconds);

// For any thread: ends all calls, also those in progress, on a context that `connect` returned, and other
// members' calls that wait for this one.
void interrupt(::gloo::Context& context);

}  // namespace hvd::ops::gloo_backend
