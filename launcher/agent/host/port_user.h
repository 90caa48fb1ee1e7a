// Finds another user who listens on a TCP port of this host: before rank 0 listens on MASTER_PORT, the port is briefly
// free, and any user of the host can bind it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace hvd::launcher {

// Returns the other user whose process listens on this port; nullopt if no process listens, or a process of this user.
std::optional<uid_t> other_user_at(uint16_t port);

}  // namespace hvd::launcher
