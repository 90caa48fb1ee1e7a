// Finds another user who listens at a TCP port of this host: before rank 0 listens at MASTER_PORT, the port is briefly
// free, and any user of the host can take it. class Ranks calls it when rank 0 has failed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace hvd::launcher {

// The user of a process that listens at this port and is not this process's user; nothing if there is none.
std::optional<uid_t> other_user_at(uint16_t port);

}  // namespace hvd::launcher
