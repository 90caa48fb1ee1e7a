// Identifies a machine: two processes have equal identities when they run on one kernel and see one
// network, whatever their host names are.
#pragma once

#include <string>

#include "base/result.h"

namespace hvd {

// The machine's own name, whatever name a launcher has for it. Empty where the system does not say.
std::string own_host_name();

// Names the running kernel since its start: two host names with one boot id may be one machine. Empty
// where /proc does not say.
std::string boot_id();

// The kernel's start and the pid and mount namespaces: two hosts of a job with equal ones are one machine
// under two names. Pods and containers of one machine share only the kernel's start. Empty where /proc does
// not say.
std::string host_identity();

// The kernel's start and the network namespace, in which abstract Unix sockets are found. No blanks.
Result<std::string> machine_identity();

}  // namespace hvd
