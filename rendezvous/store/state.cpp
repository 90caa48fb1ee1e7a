#include "rendezvous/store/state.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "rendezvous/store/durable_store.h"
#include "rendezvous/store/store.h"

namespace hvd::rendezvous {
namespace {

constexpr size_t kRemembered = 4096;
constexpr size_t kRememberedBytes = 1024 * 1024;

// Many more clients than a job has ranks. A full table takes about 100 MiB.
constexpr size_t kMaxClients = 1 << 20;

}  // namespace

void ChangeLog::add(std::string_view key, bool removed) {
  ++revision_;
  log_.push_back({std::string(key), removed});
  log_bytes_ += key.size();
  while (log_.size() > kRemembered || log_bytes_ > kRememberedBytes) {
    log_bytes_ -= log_.front().key.size();
    log_.pop_front();
  }
  if (watchers_.empty()) return;
  std::vector<OnChange> called;
  for (auto watcher = watchers_.begin(); watcher != watchers_.end();) {
    if (key.starts_with(watcher->second.prefix)) {
      called.push_back(std::move(watcher->second.on_change));
      watcher = watchers_.erase(watcher);
    } else {
      ++watcher;
    }
  }
  const Changes changes{revision_, {log_.back()}};
  for (const OnChange& on_change : called) on_change(changes);
}

Result<Changes> ChangeLog::after(uint64_t revision, std::string_view prefix) const {
  if (revision > revision_) {
    return failed_precondition(cat("revision ", revision, " does not exist yet: the store is at ",
                                   revision_, "; list the keys and watch from there"));
  }
  const uint64_t wanted = revision_ - revision;
  if (wanted > log_.size()) {
    return failed_precondition(cat("the changes after revision ", revision,
                                   " are forgotten; list the keys and watch from ", revision_));
  }
  Changes found{revision_, {}};
  for (size_t i = log_.size() - wanted; i < log_.size(); ++i) {
    if (log_[i].key.starts_with(prefix)) found.changes.push_back(log_[i]);
  }
  return found;
}

uint64_t ChangeLog::wait(std::string_view prefix, OnChange on_change) {
  const uint64_t ticket = next_ticket_++;
  watchers_.emplace(ticket, Watcher{std::string(prefix), std::move(on_change)});
  return ticket;
}

void StoreState::write_to(DurableStore* durable) {
  durable_ = durable;
  calls_.write_to(durable);
}

void StoreState::put(std::string_view key, ValuePtr value) {
  auto entry = entries_.find(key);
  if (entry == entries_.end()) entry = entries_.emplace(key, Entry{}).first;
  if (entry->second.value)
    value_bytes_ -= entry->second.value->bytes.size();
  else
    ++key_count_;
  value_bytes_ += value->bytes.size();
  entry->second.value = value;
  changes_.add(key, false);
  if (durable_) {
    durable_->put(records::name(records::RecordKind::kValue, key), value->bytes);
    record_revision();
  }
  auto waiters = std::exchange(entry->second.waiters, {});
  waiter_count_ -= waiters.size();
  for (auto& [id, on_value] : waiters) on_value(value);
}

void StoreState::drop(Entries::iterator entry) {
  if (!entry->second.value) return;
  --key_count_;
  value_bytes_ -= entry->second.value->bytes.size();
  entry->second.value = nullptr;
  changes_.add(entry->first, true);
  if (durable_) {
    durable_->remove(records::name(records::RecordKind::kValue, entry->first));
    record_revision();
  }
  if (entry->second.waiters.empty()) entries_.erase(entry);
}

Status StoreState::set(std::string_view key, ValuePtr value, const CallId& call) {
  HVD_RETURN_IF_ERROR(check_key(key));
  HVD_RETURN_IF_ERROR(check_value(key, value->bytes.size()));
  if (const auto answer = calls_.recall(call)) return answer->status;
  put(key, std::move(value));
  calls_.remember(call);
  calls_.record(call);
  return {};
}

Result<StoreState::Swapped> StoreState::compare_and_set(std::string_view key,
                                                        std::optional<ByteView> expected,
                                                        ValuePtr value, const CallId& call) {
  HVD_RETURN_IF_ERROR(check_key(key));
  HVD_RETURN_IF_ERROR(check_value(key, value->bytes.size()));
  if (const auto answer = calls_.recall(call)) {
    if (!answer->status.ok()) return answer->status;
    // The outcome's record omits the value, since the repeated call carries it again.
    if (answer->swapped && !answer->value) return Swapped{true, std::move(value)};
    return Swapped{answer->swapped, answer->value};
  }
  Swapped result{false, get(key)};
  const bool is_expected = result.value && expected
                               ? std::ranges::equal(result.value->bytes, *expected)
                               : !result.value && !expected;
  if (is_expected) {
    result = {true, value};
    put(key, std::move(value));
    calls_.record(call, true);
  }
  calls_.remember(call, result.swapped, result.value);
  return result;
}

std::vector<std::string> StoreState::list(std::string_view prefix, std::string_view after,
                                          size_t limit) const {
  std::vector<std::string> keys;
  auto entry = after > prefix ? entries_.upper_bound(after) : entries_.lower_bound(prefix);
  for (; entry != entries_.end() && keys.size() < limit; ++entry) {
    if (!entry->first.starts_with(prefix)) break;
    if (entry->second.value) keys.push_back(entry->first);
  }
  return keys;
}

Result<Changes> StoreState::watch(std::string_view prefix, uint64_t revision,
                                  ChangeLog::OnChange on_change, std::optional<Ticket>* ticket) {
  HVD_ASSIGN_OR_RETURN(Changes changes, changes_.after(revision, prefix));
  if (changes.changes.empty()) {
    *ticket = Ticket{{}, changes_.wait(prefix, std::move(on_change)), Ticket::RecordKind::kWatch};
  }
  return changes;
}

ValuePtr StoreState::get(std::string_view key) const {
  const auto entry = entries_.find(key);
  return entry == entries_.end() ? nullptr : entry->second.value;
}

Status StoreState::remove(std::string_view key, const CallId& call) {
  HVD_RETURN_IF_ERROR(check_key(key));
  if (const auto answer = calls_.recall(call)) return answer->status;
  if (const auto entry = entries_.find(key); entry != entries_.end()) drop(entry);
  calls_.remember(call);
  calls_.record(call);
  return {};
}

StoreState::Ticket StoreState::wait(std::string_view key, OnValue on_value) {
  auto entry = entries_.find(key);
  if (entry == entries_.end()) entry = entries_.emplace(key, Entry{}).first;
  const uint64_t id = next_ticket_++;
  entry->second.waiters.emplace(id, std::move(on_value));
  ++waiter_count_;
  return {std::string(key), id, Ticket::RecordKind::kKey};
}

void StoreState::withdraw(const Ticket& ticket) {
  if (ticket.kind == Ticket::RecordKind::kWatch) {
    changes_.withdraw(ticket.id);
  } else {
    const auto entry = entries_.find(ticket.name);
    if (entry == entries_.end()) return;
    waiter_count_ -= entry->second.waiters.erase(ticket.id);
    if (entry->second.waiters.empty() && !entry->second.value) entries_.erase(entry);
  }
}

void StoreState::record_revision() {
  durable_->put(records::name(records::RecordKind::kRevision),
                records::write_revision(changes_.revision()));
}

Status StoreState::restore(std::string_view record_name, ByteView record) {
  using records::RecordKind;
  if (record_name.empty()) return invalid_argument("a stored record has no name");
  const std::string_view name = record_name.substr(1);
  switch (static_cast<RecordKind>(record_name.front())) {
    case RecordKind::kValue: {
      HVD_RETURN_IF_ERROR(check_key(name));
      put(name, std::make_shared<Value>(Value{Bytes(record.begin(), record.end()), {}}));
      return {};
    }
    case RecordKind::kOutcome: {
      HVD_ASSIGN_OR_RETURN(const records::OutcomeRecord outcome, records::read_outcome(record));
      calls_.remember({std::string(name), outcome.sequence}, outcome.swapped);
      return {};
    }
    case RecordKind::kRevision: {
      HVD_ASSIGN_OR_RETURN(const uint64_t revision, records::read_revision(record));
      changes_ = ChangeLog(revision);
      return {};
    }
    default:
      return invalid_argument(
          cat("'", printable(record_name), "' is not the name of a stored record"));
  }
}

std::optional<AnsweredCalls::Answer> AnsweredCalls::recall(const CallId& call) const {
  const auto found = last_.find(call.client);
  if (call.client.empty() || found == last_.end()) return {};
  const Answer& last = found->second;
  if (call.sequence > last.sequence) return {};
  if (call.sequence == last.sequence) return last;
  return Answer{
      call.sequence,
      failed_precondition(cat("call ", call.sequence, " of this client came after its call ",
                              last.sequence, ": a client makes one at a time")),
      false,
      {}};
}

void AnsweredCalls::remember(const CallId& call, bool swapped, ValuePtr value) {
  if (call.client.empty()) return;
  const auto [entry, is_new] = last_.try_emplace(call.client);
  entry->second = {call.sequence, {}, swapped, std::move(value)};
  if (!is_new) return;
  clients_.push_back(call.client);
  if (clients_.size() > kMaxClients) {
    if (durable_) durable_->remove(records::name(records::RecordKind::kOutcome, clients_.front()));
    last_.erase(clients_.front());
    clients_.pop_front();
  }
}

void AnsweredCalls::record(const CallId& call, bool swapped) {
  if (!durable_ || call.client.empty()) return;
  durable_->put(records::name(records::RecordKind::kOutcome, call.client),
                records::write_outcome({call.sequence, swapped}));
}

}  // namespace hvd::rendezvous
