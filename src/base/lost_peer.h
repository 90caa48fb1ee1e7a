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

struct LinkEnd {
  int32_t rank;
  std::string_view host;
};
// Aborted, with `peer` as the lost rank: "the connection between rank 0 on host a and rank 3 on host b was reset".
// Both ends make the same sentence, since neither can know whether the other one has ended.
Status broken_link(LinkEnd own, LinkEnd peer, std::string_view what);
// The sentence of broken_link() in a failure, also behind a context; else empty.
std::string_view broken_link_in(const Status& status);
// Aborted, with `rank` as the lost rank: "'x' has waited 4.1 s for rank 3 on host b, which does not answer".
Status stalled_by(int32_t rank, std::string_view work, std::string_view rest);
// The sentence about the cause in a failure for which no rank has ended: of broken_link() or stalled_by(); else empty.
std::string_view cause_in(const Status& status);
// The rank that a failure takes away from rank `own`: the lost rank, and at both ends of a broken connection the
// other end, since all ranks share one failure. -1: none.
int32_t lost_rank_for(int32_t own, const Status& status);
// The first rank other than `own` that a text names as rank_on_host() does; -1: none.
int32_t other_rank_in(std::string_view text, int32_t own);

}  // namespace hvd
