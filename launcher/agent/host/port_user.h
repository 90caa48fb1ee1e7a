// Finds another user who listens on a TCP port of this host: before rank 0 listens on MASTER_PORT, the port is briefly
// free, and any user of the host can bind it. Class Ranks calls this after a failure of rank 0.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace hvd::launcher {

// Returns the user of a process that listens on this port; nothing if that is this process's user, or none listens.
std::optional<uid_t> other_user_at(uint16_t port);

}  // namespace hvd::launcher
