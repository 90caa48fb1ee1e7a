#include "rendezvous/store/state.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "rendezvous/store/durable_store.h"
#include "rendezvous/store/records.h"
#include "rendezvous/store/store_checks.h"

namespace hvd::rendezvous {
namespace {

// Far more than any job has ranks, and some 100 MiB.
constexpr size_t kMaxClients = 1 << 20;

}  // namespace

std::optional<State::Outcome> State::recall(const CallId& call) const {
  const auto found = outcomes_.find(call.client);
  if (call.client.empty() || found == outcomes_.end()) return {};
  const Outcome& last = found->second;
  if (call.sequence > last.sequence) return {};
  if (call.sequence == last.sequence) return last;
  return Outcome{
      call.sequence,
      failed_precondition(cat("call ", call.sequence, " of this client came after its call ",
                              last.sequence, ": a client makes one at a time")),
      0,
      {}};
}

void State::remember(const CallId& call, Status status, int64_t number, ValuePtr value) {
  if (call.client.empty()) return;
  const auto [entry, is_new] = outcomes_.try_emplace(call.client);
  entry->second = {call.sequence, std::move(status), number, std::move(value)};
  if (!is_new) return;
  clients_.push_back(call.client);
  if (clients_.size() > kMaxClients) {
    if (durable_) durable_->remove(records::name(records::Kind::kOutcome, clients_.front()));
    outcomes_.erase(clients_.front());
    clients_.pop_front();
  }
}

void State::put(std::string_view key, ValuePtr value, Clock::time_point expires) {
  auto entry = entries_.find(key);
  if (entry == entries_.end()) entry = entries_.emplace(key, Entry{}).first;
  if (entry->second.value)
    value_bytes_ -= entry->second.value->bytes.size();
  else
    ++key_count_;
  value_bytes_ += value->bytes.size();
  entry->second.value = value;
  set_expiry(entry, expires);
  changes_.add(key, false);
  if (durable_) {
    durable_->put(records::name(records::Kind::kValue, key),
                  records::write_value(value->bytes, expires));
    record_revision();
  }
  auto waiters = std::exchange(entry->second.waiters, {});
  waiter_count_ -= waiters.size();
  for (auto& [id, on_value] : waiters) on_value(value);
}

// The last entry of a key in expiries_ goes with its time.
void State::set_expiry(Entries::iterator entry, Clock::time_point expires) {
  if (entry->second.expires != Clock::time_point::max()) {
    auto [first, last] = expiries_.equal_range(entry->second.expires);
    while (first != last && first->second != entry->first) ++first;
    if (first != last) expiries_.erase(first);
  }
  entry->second.expires = expires;
  if (expires != Clock::time_point::max()) expiries_.emplace(expires, entry->first);
}

void State::drop(Entries::iterator entry) {
  if (!entry->second.value) return;
  --key_count_;
  value_bytes_ -= entry->second.value->bytes.size();
  entry->second.value = nullptr;
  set_expiry(entry, Clock::time_point::max());
  changes_.add(entry->first, true);
  if (durable_) {
    durable_->remove(records::name(records::Kind::kValue, entry->first));
    record_revision();
  }
  if (entry->second.waiters.empty()) entries_.erase(entry);
}

void State::expire(Clock::time_point now) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    drop(entries_.find(expiries_.begin()->second));
    if (durable_) durable_->seal();
  }
}

Clock::time_point State::next_expiry() const {
  return expiries_.empty() ? Clock::time_point::max() : expiries_.begin()->first;
}

Status State::set(std::string_view key, ValuePtr value, const CallId& call,
                  Clock::time_point expires) {
  HVD_RETURN_IF_ERROR(check_key(key));
  HVD_RETURN_IF_ERROR(check_value(key, value->bytes.size()));
  if (const auto outcome = recall(call)) return outcome->status;
  put(key, std::move(value), expires);
  remember(call, {});
  record_outcome(call, 0);
  return {};
}

Result<State::Swapped> State::compare_and_set(std::string_view key,
                                              std::optional<ByteView> expected, ValuePtr value,
                                              const CallId& call) {
  HVD_RETURN_IF_ERROR(check_key(key));
  HVD_RETURN_IF_ERROR(check_value(key, value->bytes.size()));
  if (const auto outcome = recall(call)) {
    if (!outcome->status.ok()) return outcome->status;
    // The value is not stored with the outcome: the repeated call carries it again.
    if (outcome->number != 0 && !outcome->value) return Swapped{true, std::move(value)};
    return Swapped{outcome->number != 0, outcome->value};
  }
  Swapped result{false, get(key)};
  const bool is_expected = result.value && expected
                               ? std::ranges::equal(result.value->bytes, *expected)
                               : !result.value && !expected;
  if (is_expected) {
    result = {true, value};
    put(key, std::move(value));
    record_outcome(call, 1);
  }
  remember(call, {}, result.swapped ? 1 : 0, result.value);
  return result;
}

std::vector<std::string> State::list(std::string_view prefix, std::string_view after,
                                     size_t limit) const {
  std::vector<std::string> keys;
  auto entry = after > prefix ? entries_.upper_bound(after) : entries_.lower_bound(prefix);
  for (; entry != entries_.end() && keys.size() < limit; ++entry) {
    if (!entry->first.starts_with(prefix)) break;
    if (entry->second.value) keys.push_back(entry->first);
  }
  return keys;
}

Result<Changes> State::watch(std::string_view prefix, uint64_t revision,
                             ChangeLog::OnChange on_change, std::optional<Ticket>* ticket) {
  HVD_ASSIGN_OR_RETURN(Changes changes, changes_.after(revision, prefix));
  if (changes.changes.empty()) {
    *ticket = Ticket{{}, changes_.wait(prefix, std::move(on_change)), Ticket::Kind::kWatch};
  }
  return changes;
}

ValuePtr State::get(std::string_view key) const {
  const auto entry = entries_.find(key);
  return entry == entries_.end() ? nullptr : entry->second.value;
}

Result<int64_t> State::add(std::string_view key, int64_t amount, const CallId& call) {
  HVD_RETURN_IF_ERROR(check_key(key));
  if (const auto outcome = recall(call)) {
    if (!outcome->status.ok()) return outcome->status;
    return outcome->number;
  }
  int64_t sum = 0;
  if (const ValuePtr old = get(key)) {
    const auto number = parse_int(as_text(old->bytes));
    if (!number) {
      return failed_precondition(cat("'", printable(key), "' holds no number to add to"));
    }
    sum = *number;
  }
  if (__builtin_add_overflow(sum, amount, &sum)) {
    return failed_precondition(cat("the counter '", printable(key), "' would overflow"));
  }
  put(key, std::make_shared<Value>(Value{to_bytes(std::to_string(sum)), {}}));
  remember(call, {}, sum);
  record_outcome(call, sum);
  return sum;
}

Status State::remove(std::string_view key, const CallId& call) {
  HVD_RETURN_IF_ERROR(check_key(key));
  if (const auto outcome = recall(call)) return outcome->status;
  if (const auto entry = entries_.find(key); entry != entries_.end()) drop(entry);
  remember(call, {});
  record_outcome(call, 0);
  return {};
}

State::Ticket State::wait(std::string_view key, OnValue on_value) {
  auto entry = entries_.find(key);
  if (entry == entries_.end()) entry = entries_.emplace(key, Entry{}).first;
  const uint64_t id = next_ticket_++;
  entry->second.waiters.emplace(id, std::move(on_value));
  ++waiter_count_;
  return {std::string(key), id, Ticket::Kind::kKey};
}

void State::withdraw(const Ticket& ticket) {
  if (ticket.kind == Ticket::Kind::kWatch) {
    changes_.withdraw(ticket.id);
  } else if (ticket.kind == Ticket::Kind::kFence) {
    leave_fence(ticket);
  } else {
    const auto entry = entries_.find(ticket.name);
    if (entry == entries_.end()) return;
    waiter_count_ -= entry->second.waiters.erase(ticket.id);
    if (entry->second.waiters.empty() && !entry->second.value) entries_.erase(entry);
  }
}

// Writes the records of a State, and restores them.

using records::Kind;

// Calls that changed nothing are not recorded: repeating them does no harm.
void State::record_outcome(const CallId& call, int64_t number) {
  if (!durable_ || call.client.empty()) return;
  durable_->put(records::name(Kind::kOutcome, call.client),
                records::write_outcome({call.sequence, number}));
}

void State::record_revision() {
  durable_->put(records::name(Kind::kRevision), records::write_revision(changes_.revision()));
}

// A party that reads that its fence has opened must not leave others behind at a closed one: all
// are written in one record, which is removed when each has its own.
void State::record_fence(const Fence& fence) {
  std::vector<CallId> calls;
  for (const auto& [id, arrival] : fence.arrivals) {
    if (!arrival.party.call.client.empty()) calls.push_back(arrival.party.call);
  }
  const std::string name = records::name(Kind::kFence, std::to_string(next_ticket_++));
  durable_->put(name, records::write_calls(calls));
  durable_->seal();
  size_t together = 0;
  for (const CallId& call : calls) {
    record_outcome(call, 0);
    if (++together % DurableStore::kMostTogether == 0) durable_->seal();
  }
  durable_->seal();
  durable_->remove(name);
  durable_->seal();
}

Status State::restore(std::string_view record_name, ByteView record) {
  if (record_name.empty()) return invalid_argument("a stored record has no name");
  const std::string_view name = record_name.substr(1);
  switch (static_cast<Kind>(record_name.front())) {
    case Kind::kValue: {
      HVD_RETURN_IF_ERROR(check_key(name));
      HVD_ASSIGN_OR_RETURN(records::ValueRecord value, records::read_value(record));
      put(name, std::make_shared<Value>(Value{std::move(value.bytes), {}}), value.expires);
      return {};
    }
    case Kind::kOutcome: {
      HVD_ASSIGN_OR_RETURN(const records::OutcomeRecord outcome, records::read_outcome(record));
      remember({std::string(name), outcome.sequence}, {}, outcome.number);
      return {};
    }
    case Kind::kFence: {
      HVD_ASSIGN_OR_RETURN(const std::vector<CallId> calls, records::read_calls(record));
      for (const CallId& call : calls) {
        const auto last = outcomes_.find(call.client);
        if (last != outcomes_.end() && last->second.sequence >= call.sequence) continue;
        remember(call, {});
        record_outcome(call, 0);
        if (durable_) durable_->seal();
      }
      return {};
    }
    case Kind::kRevision: {
      HVD_ASSIGN_OR_RETURN(const uint64_t revision, records::read_revision(record));
      changes_ = ChangeLog(revision);
      return {};
    }
    default:
      return invalid_argument(cat("'", printable(record_name), "' is no name of a stored record"));
  }
}

// How parties meet at a fence of a State: the last one to arrive lets all go.

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

Result<std::optional<State::Ticket>> State::arrive(std::string_view name, int count,
                                                   FenceParty party, OnFence on_fence) {
  HVD_RETURN_IF_ERROR(check_key(name));
  if (count < 1) return invalid_argument(cat("a fence of ", count, " parties makes no sense"));
  if (const auto outcome = recall(party.call)) {
    if (!outcome->status.ok()) return outcome->status;
    return std::optional<Ticket>();
  }
  auto found = fences_.find(name);
  if (found == fences_.end()) found = fences_.emplace(name, Fence{count, {}, {}}).first;
  Fence& fence = found->second;
  if (fence.count != count) {
    return failed_precondition(cat("fence '", printable(name), "' is one of ", fence.count,
                                   " parties for those who wait, and of ", count, " for this one"));
  }
  drop_earlier(name, fence, party.call);
  const uint64_t id = next_ticket_++;
  if (!party.call.client.empty()) fence.of_client.emplace(party.call.client, id);
  fence.arrivals.emplace(id, Arrival{std::move(party), std::move(on_fence)});
  ++waiter_count_;
  if (fence.arrivals.size() < static_cast<size_t>(count)) {
    return std::optional(Ticket{std::string(name), id, Ticket::Kind::kFence});
  }
  fence.arrivals.at(id).on_fence = nullptr;
  Fence full = std::move(fence);
  fences_.erase(found);
  complete(std::move(full));
  return std::optional<Ticket>();
}

// A client that lost its connection repeats its call before the old connection is known to be
// dead: the new arrival takes the old one's place.
void State::drop_earlier(std::string_view name, Fence& fence, const CallId& call) {
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

void State::complete(Fence fence) {
  waiter_count_ -= fence.arrivals.size();
  if (durable_) record_fence(fence);
  for (auto& [id, arrival] : fence.arrivals) remember(arrival.party.call, {});
  for (auto& [id, arrival] : fence.arrivals) {
    if (arrival.on_fence) arrival.on_fence({});
  }
}

void State::leave_fence(const Ticket& ticket) {
  const auto fence = fences_.find(ticket.name);
  if (fence == fences_.end()) return;
  const auto arrival = fence->second.arrivals.find(ticket.id);
  if (arrival == fence->second.arrivals.end()) return;
  fence->second.of_client.erase(arrival->second.party.call.client);
  fence->second.arrivals.erase(arrival);
  --waiter_count_;
  if (fence->second.arrivals.empty()) fences_.erase(fence);
}

std::string State::describe_fence(std::string_view name) const {
  const auto found = fences_.find(name);
  if (found == fences_.end()) return cat("nobody waits at fence '", printable(name), "'");
  const Fence& fence = found->second;
  const auto count = static_cast<size_t>(fence.count);
  std::string text =
      cat("fence '", printable(name), "' waits for ", count - fence.arrivals.size(), " of ", count);
  // Who is missing is known only where everybody who is there said his rank, and each another.
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
