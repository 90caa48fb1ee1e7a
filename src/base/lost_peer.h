// Names a rank in errors, and makes the failure that the loss of a rank causes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd {

// "rank 3 on host b"
std::string rank_on_host(int32_t rank, std::string_view host);

// Aborted: "rank 3 on host b was lost: its process ended"; `what` begins with "its".
Status lost_peer(int32_t rank, std::string_view host, std::string_view what);

}  // namespace hvd
