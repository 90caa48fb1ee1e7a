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

// Uses HOROVOD_GLOO_IFACE; else the loopback interface if all ranks are on this host, else the host's name.
std::shared_ptr<::gloo::transport::Device> make_device(const hvd_plugin_host& host,
                                                       const hvd_plugin_config& config);

// Waits for all members. `name` must be equal on all members and unique for each mesh. Lets Gloo's
// exceptions through.
Result<std::shared_ptr<::gloo::Context>> connect(const hvd_plugin_host& host,
                                                 std::shared_ptr<::gloo::transport::Device> device,
                                                 const std::string& name, int index, int size,
                                                 bool is_everyone, double timeout_seconds);

// Any thread may call it: ends all calls on a context from connect(), including those in progress,
// and other members' calls that wait for this member.
void interrupt(::gloo::Context& context);

}  // namespace hvd::ops::gloo_backend
