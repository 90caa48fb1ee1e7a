#include "base/lost_peer.h"

#include <algorithm>

#include "base/text.h"

namespace hvd {

namespace {

constexpr std::string_view kBetween = "the connection between rank ";
constexpr std::string_view kAnd = " and rank ";
constexpr std::string_view kHasWaited = " has waited ";
constexpr std::string_view kRank = "rank ";
constexpr std::string_view kOnHost = " on host ";

// Returns the number at the beginning of a text, or -1.
int32_t leading_rank(std::string_view text) {
  const auto rank = parse_int(text.substr(0, text.find_first_not_of("0123456789")));
  return rank && *rank <= INT32_MAX ? static_cast<int32_t>(*rank) : -1;
}

}  // namespace

std::string rank_on_host(int32_t rank, std::string_view host) {
  return cat(kRank, rank, kOnHost, host);
}

Status lost_peer(int32_t rank, std::string_view host, std::string_view what) {
  return aborted(cat(rank_on_host(rank, host), " was lost: ", what)).with_lost_rank(rank);
}

Status broken_link(LinkEnd own, LinkEnd peer, std::string_view what) {
  const bool is_first = own.rank < peer.rank;
  const LinkEnd& first = is_first ? own : peer;
  const LinkEnd& second = is_first ? peer : own;
  return aborted(cat(kBetween, first.rank, " on host ", first.host, " and ",
                     rank_on_host(second.rank, second.host), " ", what))
      .with_lost_rank(peer.rank);
}

std::string_view broken_link_in(const Status& status) {
  const std::string_view text = status.message();
  const size_t begin = text.find(kBetween);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

Status stalled_by(int32_t rank, std::string_view work, std::string_view rest) {
  return aborted(cat(work, kHasWaited, rest)).with_lost_rank(rank);
}

std::string_view cause_in(const Status& status) {
  const std::string_view link = broken_link_in(status);
  const std::string_view text = status.message();
  const size_t waited = text.find(kHasWaited);
  if (!link.empty() || waited == std::string_view::npos) return link;
  // The operation's name is quoted, and may contain any other character.
  const size_t begin = text.substr(0, waited).find('\'');
  return begin == std::string_view::npos ? text : text.substr(begin);
}

int32_t lost_rank_for(int32_t own, const Status& status) {
  const std::string_view link = broken_link_in(status);
  if (status.lost_rank() != own || link.empty()) return status.lost_rank();
  const int32_t first = leading_rank(link.substr(kBetween.size()));
  if (first != own) return first;
  const size_t second = link.find(kAnd);
  return second == std::string_view::npos ? -1 : leading_rank(link.substr(second + kAnd.size()));
}

int32_t other_rank_in(std::string_view text, int32_t own) {
  for (size_t at = text.find(kRank); at != std::string_view::npos; at = text.find(kRank, at)) {
    at += kRank.size();
    const std::string_view rest = text.substr(at);
    const size_t end = std::min(rest.find_first_not_of("0123456789"), rest.size());
    const int32_t rank = leading_rank(rest);
    if (rank >= 0 && rank != own && rest.substr(end).starts_with(kOnHost)) return rank;
  }
  return -1;
}

}  // namespace hvd
