// Makes and parses the sentence with which a rank reports a lost peer. The sentence travels from links
// to the launcher through interfaces that carry a cause only as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hvd {

// "rank 3 on host b"
std::string rank_on_host(int32_t rank, std::string_view host);

// "rank 3 on host b was lost: its process ended"; `what` begins with "its".
std::string lost_peer(int32_t rank, std::string_view host, std::string_view what);

// The rank that such a sentence names, wherever it stands in `text`.
std::optional<int32_t> lost_peer_in(std::string_view text);

}  // namespace hvd
