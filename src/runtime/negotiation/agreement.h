// Checks that the requests of all ranks for one name are equal, and makes the error message if they differ. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

// Merges the requests of another part of the tree. If requests differ, keeps the requests of the
// lowest ranks, since an error names two ranks.
void merge(Proposal* into, Proposal&& other);

// A borrowed request of a rank.
struct RankRequest {
  RankRequest(int32_t rank, const Request& request) : rank(rank), request(request) {}
  RankRequest(const Variant& variant) : RankRequest(variant.rank, variant.request) {}
  int32_t rank;
  const Request& request;
};

// Returns how two requests differ; nullopt if both may run together. Ranks may have different rows and splits.
std::optional<std::string> disagreement(const std::string& name, const RankRequest& a,
                                        const RankRequest& b);

// Checks that `rows` has one entry for each member, in order, with as many numbers as the operation
// needs, and that the size in bytes does not overflow.
Status check_rows(std::string_view name, const Request& request, std::span<const RankRows> rows,
                  std::span<const int32_t> members);

// Checks a name that every rank has announced, except the ranks that have joined. Returns the error of the first failed
// check: finite factors, no refusal, equal parameters, no joined rank, at least one dimension, then checks that depend
// on the earlier ones. `joined` names the joined ranks, for example "rank 3"; may be empty.
Status verdict(const Proposal& proposal, std::string_view joined = {});

}  // namespace hvd::runtime
