#include "rendezvous/store/fences.h"

#include <utility>
#include <vector>

#include "base/text.h"
#include "rendezvous/store/durable_store.h"
#include "rendezvous/store/records.h"
#include "rendezvous/store/store_checks.h"

namespace hvd::rendezvous {
namespace {

std::string join_numbers(const std::vector<int>& numbers) {
  constexpr size_t kShown = 16;
  std::string text;
  for (size_t i = 0; i < numbers.size() && i < kShown; ++i) {
    if (i > 0) text += i + 1 == numbers.size() ? " and " : ", ";
    text += std::to_string(numbers[i]);
  }
  if (numbers.size() > kShown) text += cat(" and ", numbers.size() - kShown, " more");
  return text;
}

}  // namespace

Result<std::optional<uint64_t>> Fences::arrive(std::string_view name, int count, FenceParty party,
                                               OnFence on_fence) {
  HVD_RETURN_IF_ERROR(check_key(name));
  if (count < 1) return invalid_argument(cat("a fence needs 1 party or more, not ", count));
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
  const std::string name = records::name(records::Kind::kFence, std::to_string(next_number_++));
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
  const auto count = static_cast<size_t>(fence.count);
  std::string text =
      cat("fence '", printable(name), "' waits for ", count - fence.arrivals.size(), " of ", count);
  // The missing ranks are known only if all waiting parties gave a rank, and no two the same.
  std::vector<bool> is_here(count);
  size_t known = 0;
  for (const auto& [id, arrival] : fence.arrivals) {
    const auto rank = static_cast<size_t>(arrival.party.rank);
    if (arrival.party.rank < 0 || rank >= count || is_here[rank]) continue;
    is_here[rank] = true;
    ++known;
  }
  if (known != fence.arrivals.size()) return text;
  std::vector<int> missing;
  for (size_t rank = 0; rank < count; ++rank) {
    if (!is_here[rank]) missing.push_back(static_cast<int>(rank));
  }
  return cat(text, missing.size() == 1 ? ": rank " : ": ranks ", join_numbers(missing));
}

}  // namespace hvd::rendezvous
