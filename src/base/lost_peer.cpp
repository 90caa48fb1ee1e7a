#include "base/lost_peer.h"

#include "base/text.h"

namespace hvd {

std::string rank_on_host(int32_t rank, std::string_view host) {
  return cat("rank ", rank, " on host ", host);
}

Status lost_peer(int32_t rank, std::string_view host, std::string_view what) {
  return aborted(cat(rank_on_host(rank, host), " was lost: ", what)).with_lost_rank(rank);
}

}  // namespace hvd
