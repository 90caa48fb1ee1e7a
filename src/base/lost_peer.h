// Names a rank in errors, and makes the error for a lost rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd {

// Returns, for example, "rank 3 on host b".
std::string rank_on_host(int32_t rank, std::string_view host);

// Returns kAborted: "rank 3 on host b was lost: its process ended"; `what` begins with "its".
Status lost_peer(int32_t rank, std::string_view host, std::string_view what);

struct LinkEnd {
  int32_t rank;
  std::string_view host;
};
// Returns kAborted, with `peer` as the lost rank: "the connection between rank 0 on host a and rank 3 on host b was
// reset". Both ranks make the same message, since neither knows whether the other has ended.
Status broken_link(LinkEnd own, LinkEnd peer, std::string_view what);
// Returns the message of broken_link() that a failure contains, without the context before the message; else empty.
std::string_view broken_link_in(const Status& status);
// Returns kAborted, with lost rank `rank`: `work` + " has waited " + `rest`, for example with "'x'" and "4.1 s for
// rank 3 on host b, which does not answer".
Status stalled_by(int32_t rank, std::string_view work, std::string_view rest);
// Returns the message of broken_link() or stalled_by() in a failure; empty for other causes.
std::string_view cause_in(const Status& status);
// Returns the rank that rank `own` lost by a failure, or -1. All ranks get the same failure, but each end of a broken
// connection has lost the rank at its other end.
int32_t lost_rank_for(int32_t own, const Status& status);
// Returns the first rank, except `own`, that a text names in the form of rank_on_host(), or -1.
int32_t other_rank_in(std::string_view text, int32_t own);

}  // namespace hvd
