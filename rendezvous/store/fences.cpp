#include "rendezvous/store/fences.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "rendezvous/store/durable_store.h"
#include "rendezvous/store/records.h"
#include "rendezvous/store/store.h"
#include "rendezvous/store/store_checks.h"

namespace hvd::rendezvous {
namespace {

// The first ranks without a mark in `is_here`, of `missing` in all. Ranks behind the marks are missing.
std::string join_missing(const std::vector<bool>& is_here, size_t missing) {
  constexpr size_t kShown = 16;
  std::string text;
  size_t shown = 0;
  for (size_t rank = 0; shown < std::min(missing, kShown); ++rank) {
    if (rank < is_here.size() && is_here[rank]) continue;
    if (shown > 0) text += shown + 1 == missing ? " and " : ", ";
    text += std::to_string(rank);
    ++shown;
  }
  if (missing > kShown) text += cat(" and ", missing - kShown, " more");
  return text;
}

}  // namespace

Result<std::optional<uint64_t>> Fences::arrive(std::string_view name, int count, FenceParty party,
                                               OnFence on_fence) {
  HVD_RETURN_IF_ERROR(check_key(name));
  if (count < 1 || count > kMaxParties) {
    return invalid_argument(cat("a fence has 1 to ", kMaxParties, " parties, not ", count));
  }
  if (const auto answer = calls_.recall(party.call)) {
    if (!answer->status.ok()) return answer->status;
    return std::optional<uint64_t>();
  }
  auto found = fences_.find(name);
  if (found == fences_.end()) found = fences_.emplace(name, Fence{count, {}, {}}).first;
  Fence& fence = found->second;
  if (fence.count != count) {
    return failed_precondition(cat("fence '", printable(name), "' is one of ", fence.count,
                                   " parties for those who wait, and of ", count, " for this one"));
  }
  drop_earlier(name, fence, party.call);
  const uint64_t id = next_number_++;
  if (!party.call.client.empty()) fence.of_client.emplace(party.call.client, id);
  fence.arrivals.emplace(id, Arrival{std::move(party), std::move(on_fence)});
  ++waiter_count_;
  if (fence.arrivals.size() < static_cast<size_t>(count)) {
    return std::optional(id);
  }
  fence.arrivals.at(id).on_fence = nullptr;
  Fence full = std::move(fence);
  fences_.erase(found);
  complete(std::move(full));
  return std::optional<uint64_t>();
}

// A client that lost its connection may repeat its call before the server notices the loss. The new
// arrival replaces the old one.
void Fences::drop_earlier(std::string_view name, Fence& fence, const CallId& call) {
  const auto earlier = fence.of_client.find(call.client);
  if (earlier == fence.of_client.end()) return;
  const auto arrival = fence.arrivals.find(earlier->second);
  const OnFence on_fence = std::move(arrival->second.on_fence);
  fence.arrivals.erase(arrival);
  fence.of_client.erase(earlier);
  --waiter_count_;
  on_fence(aborted(cat("the wait at fence '", printable(name),
                       "' was taken over by a later connection of the same client")));
}

void Fences::complete(Fence fence) {
  waiter_count_ -= fence.arrivals.size();
  if (durable_) record(fence);
  for (auto& [id, arrival] : fence.arrivals) calls_.remember(arrival.party.call, {});
  for (auto& [id, arrival] : fence.arrivals) {
    if (arrival.on_fence) arrival.on_fence({});
  }
}

// Once one party has read that the fence is open, the fence must be open for all, also at the next
// server. One record therefore names all parties. It is removed after each party has its own record.
void Fences::record(const Fence& fence) {
  std::vector<CallId> calls;
  for (const auto& [id, arrival] : fence.arrivals) {
    if (!arrival.party.call.client.empty()) calls.push_back(arrival.party.call);
  }
  const std::string name =
      records::name(records::RecordKind::kFence, std::to_string(next_number_++));
  durable_->put(name, records::write_calls(calls));
  durable_->seal();
  size_t together = 0;
  for (const CallId& call : calls) {
    calls_.record(call, 0);
    if (++together % DurableStore::kMostTogether == 0) durable_->seal();
  }
  durable_->seal();
  durable_->remove(name);
  durable_->seal();
}

Status Fences::restore(ByteView record) {
  HVD_ASSIGN_OR_RETURN(const std::vector<CallId> calls, records::read_calls(record));
  for (const CallId& call : calls) {
    if (calls_.recall(call)) continue;
    calls_.remember(call, {});
    calls_.record(call, 0);
    if (durable_) durable_->seal();
  }
  return {};
}

void Fences::withdraw(std::string_view name, uint64_t place) {
  const auto fence = fences_.find(name);
  if (fence == fences_.end()) return;
  const auto arrival = fence->second.arrivals.find(place);
  if (arrival == fence->second.arrivals.end()) return;
  fence->second.of_client.erase(arrival->second.party.call.client);
  fence->second.arrivals.erase(arrival);
  --waiter_count_;
  if (fence->second.arrivals.empty()) fences_.erase(fence);
}

std::string Fences::describe(std::string_view name) const {
  const auto found = fences_.find(name);
  if (found == fences_.end()) return cat("nobody waits at fence '", printable(name), "'");
  const Fence& fence = found->second;
  const size_t missing = static_cast<size_t>(fence.count) - fence.arrivals.size();
  std::string text = cat("fence '", printable(name), "' waits for ", missing, " of ", fence.count);
  // The missing ranks are known only if all waiting parties gave a rank, and no two the same. The marks
  // end at the highest rank that waits, since a client names the count.
  std::vector<bool> is_here;
  for (const auto& [id, arrival] : fence.arrivals) {
    if (arrival.party.rank < 0 || arrival.party.rank >= fence.count) return text;
    const auto rank = static_cast<size_t>(arrival.party.rank);
    if (rank >= is_here.size()) is_here.resize(rank + 1);
    if (is_here[rank]) return text;
    is_here[rank] = true;
  }
  return cat(text, missing == 1 ? ": rank " : ": ranks ", join_missing(is_here, missing));
}

}  // namespace hvd::rendezvous
