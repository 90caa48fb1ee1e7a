#include "base/lost_peer.h"

#include <limits>

#include "base/text.h"

namespace hvd {

namespace {

constexpr std::string_view kRank = "rank ";
constexpr std::string_view kOnHost = " on host ";
constexpr std::string_view kWasLost = " was lost: ";

}  // namespace

std::string rank_on_host(int32_t rank, std::string_view host) {
  return cat(kRank, rank, kOnHost, host);
}

std::string lost_peer(int32_t rank, std::string_view host, std::string_view what) {
  return cat(rank_on_host(rank, host), kWasLost, what);
}

std::optional<int32_t> lost_peer_in(std::string_view text) {
  const std::string_view before = text.substr(0, text.find(kWasLost));
  const size_t place = before.rfind(kOnHost);
  if (before.size() == text.size() || place == std::string_view::npos) return {};
  const size_t number = before.rfind(kRank, place);
  if (number == std::string_view::npos) return {};
  const auto rank = parse_int(before.substr(number + kRank.size(), place - number - kRank.size()));
  if (!rank || *rank < 0 || *rank > std::numeric_limits<int32_t>::max()) return {};
  return static_cast<int32_t>(*rank);
}

}  // namespace hvd
