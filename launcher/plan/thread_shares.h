// Formats the sentences about the number of threads for ranks that share a host, and about too few cores. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hvd::launcher {

// `threads` of each host's ranks; 0: it sets nothing there. Empty when that is so on all.
std::string describe_thread_shares(const std::vector<std::string>& hosts,
                                   const std::vector<uint32_t>& threads);

// A sentence about hosts whose ranks share fewer cores than these hosts have: their names, each with "1 of 8". Empty
// without hosts.
std::string describe_binding(const std::vector<std::pair<std::string, std::string>>& hosts);

}  // namespace hvd::launcher
