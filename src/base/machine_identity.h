// Identifies a machine: two processes have equal identities if they run on one kernel and see one
// network, even if their host names differ.
#pragma once

#include <string>

#include "base/result.h"

namespace hvd {

// Returns the machine's own host name, independent of the launcher's name for it. Empty if the system has none.
std::string own_host_name();

// Identifies the boot of the running kernel: two host names with one boot id may be one machine.
// Empty if /proc does not have the id.
std::string boot_id();

// Identifies the boot and the pid and mount namespaces: two hosts of a job with equal identities
// are one machine with two names. Pods and containers of one machine share only the boot. Empty if
// /proc does not have the identity.
std::string host_identity();

// Identifies the boot and the network namespace, outside which abstract Unix sockets are not visible. Without
// blanks.
Result<std::string> machine_identity();

}  // namespace hvd
