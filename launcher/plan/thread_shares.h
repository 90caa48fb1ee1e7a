// Formats the sentence about the number of threads for ranks that share a host. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd::launcher {

// `threads` of each host's ranks; 0: it sets nothing there. Empty when that is so on all.
std::string describe_thread_shares(const std::vector<std::string>& hosts,
                                   const std::vector<uint32_t>& threads);

}  // namespace hvd::launcher
