#include "rendezvous/store/exchange.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "rendezvous/store/durable_store.h"

namespace hvd::rendezvous {
namespace {

// A larger size is refused, before it can overflow.
constexpr int64_t kMaxRecordBytes = static_cast<int64_t>(kMaxValueBytes);

Ranges everybody(size_t count) { return {{0, static_cast<int>(count) - 1}}; }

}  // namespace

std::string to_text(const Ranges& ranges) {
  std::string text;
  for (const auto& [first, last] : ranges) {
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (last > first) text.append("-").append(std::to_string(last));
  }
  return text;
}

Result<Ranges> parse_ranges(std::string_view text, int count) {
  const Status malformed =
      invalid_argument(cat("'", printable(text, 80), "' does not name parties from 0 to ",
                           count - 1, " in ascending order, such as 0-3,9"));
  Ranges ranges;
  int above = -1;
  for (;;) {
    const std::string_view one = text.substr(0, text.find(','));
    const size_t dash = one.find('-');
    const auto first = parse_int(one.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_int(one.substr(dash + 1));
    if (!first || !last || *first <= above || *last < *first || *last >= count) return malformed;
    ranges.emplace_back(static_cast<int>(*first), static_cast<int>(*last));
    above = static_cast<int>(*last);
    if (one.size() == text.size()) return ranges;
    text.remove_prefix(one.size() + 1);
  }
}

Ranges ranges_of(std::vector<int> indices) {
  std::sort(indices.begin(), indices.end());
  Ranges ranges;
  for (const int index : indices) {
    if (!ranges.empty() && ranges.back().second >= index - 1)
      ranges.back().second = index;
    else
      ranges.emplace_back(index, index);
  }
  return ranges;
}

Result<std::vector<Record>> parse_records(ByteView bytes) {
  const Status malformed = internal_error("the server's answer to exchange is malformed");
  std::string_view text = as_text(bytes);
  std::vector<Record> records;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const size_t space = line.find(' ');
    if (end == std::string_view::npos || space == std::string_view::npos) return malformed;
    const auto index = parse_int(line.substr(0, space));
    const auto size = parse_int(line.substr(space + 1));
    text.remove_prefix(end + 1);
    if (!index || !size || *index < 0 || *index >= kMaxParties || *size < 0 ||
        *size > kMaxRecordBytes || static_cast<size_t>(*size) > text.size()) {
      return malformed;
    }
    records.push_back(
        {static_cast<int>(*index), to_bytes(text.substr(0, static_cast<size_t>(*size)))});
    text.remove_prefix(static_cast<size_t>(*size));
  }
  return records;
}

Status check_party(const Party& party) {
  if (party.count < 1 || party.count > kMaxParties || party.index < 0 ||
      party.index >= party.count) {
    return invalid_argument(cat("party ", party.index, " of ", party.count, " is out of range"));
  }
  for (const int wanted : party.wanted) {
    if (wanted >= 0 && wanted < party.count) continue;
    return invalid_argument(cat("there is no party ", wanted, " among ", party.count));
  }
  return {};
}

Result<std::vector<Bytes>> records_for(const Party& party, ByteView text) {
  HVD_ASSIGN_OR_RETURN(std::vector<Record> records, parse_records(text));
  std::vector<Bytes> result;
  if (party.wanted.empty()) {
    for (Record& record : records) result.push_back(std::move(record.bytes));
    if (result.size() == static_cast<size_t>(party.count)) return result;
    return internal_error("the server's answer to exchange lacks records");
  }
  for (const int wanted : party.wanted) {
    const auto found =
        std::lower_bound(records.begin(), records.end(), wanted,
                         [](const Record& record, int index) { return record.index < index; });
    if (found == records.end() || found->index != wanted) {
      return internal_error("the server's answer to exchange lacks records");
    }
    result.push_back(found->bytes);
  }
  return result;
}

Status forgotten(std::string_view name) {
  return aborted(cat("exchange '", printable(name), "' was forgotten before all records came"));
}

ValuePtr Exchanges::text_of(Exchange& exchange, const Ranges& wanted) {
  const bool is_all = wanted == everybody(exchange.records.size());
  if (is_all && exchange.all) return exchange.all;
  auto value = std::make_shared<Value>();
  for (const auto& [first, last] : wanted) {
    for (int index = first; index <= last; ++index) {
      const Bytes& record = *exchange.records[static_cast<size_t>(index)];
      const std::string head = cat(index, " ", record.size(), "\n");
      const ByteView head_bytes = as_bytes(head);
      value->bytes.insert(value->bytes.end(), head_bytes.begin(), head_bytes.end());
      value->bytes.insert(value->bytes.end(), record.begin(), record.end());
    }
  }
  value->digest = sha256(value->bytes);
  if (is_all) exchange.all = value;
  return value;
}

Exchanges::Exchange& Exchanges::exchange_of(std::string_view name, int count) {
  auto found = exchanges_.find(name);
  if (found == exchanges_.end()) {
    found = exchanges_.emplace(name, Exchange{}).first;
    found->second.records.resize(static_cast<size_t>(count));
  }
  return found->second;
}

Status Exchanges::restore(std::string_view name, ByteView record) {
  HVD_ASSIGN_OR_RETURN(const records::ExchangeName place, records::read_exchange_name(name));
  HVD_ASSIGN_OR_RETURN(records::ExchangeRecord one, records::read_exchange(record));
  HVD_RETURN_IF_ERROR(check_key(place.exchange));
  HVD_RETURN_IF_ERROR(check_party({place.index, one.count, {}}));
  Exchange& exchange = exchange_of(place.exchange, one.count);
  if (exchange.records.size() != static_cast<size_t>(one.count)) {
    return invalid_argument(cat("the stored records of exchange '", printable(place.exchange),
                                "' name different counts"));
  }
  exchange.records[static_cast<size_t>(place.index)] = std::move(one.bytes);
  ++exchange.present;
  return {};
}

Result<ValuePtr> Exchanges::join(std::string_view name, int count, int index, Bytes record,
                                 Ranges wanted, OnRecords on_records,
                                 std::optional<Ticket>* ticket) {
  HVD_RETURN_IF_ERROR(check_key(name));
  HVD_RETURN_IF_ERROR(check_party({index, count, {}}));
  Exchange& exchange = exchange_of(name, count);
  if (exchange.records.size() != static_cast<size_t>(count)) {
    return failed_precondition(cat("exchange '", printable(name), "' has ", exchange.records.size(),
                                   " parties for earlier callers, and ", count, " for this one"));
  }
  auto& own = exchange.records[static_cast<size_t>(index)];
  if (own && *own != record) {
    return failed_precondition(cat(
        "party ", index, " has already left another record at exchange '", printable(name), "'"));
  }
  if (!own) {
    own = std::move(record);
    if (durable_)
      durable_->put(records::exchange_record_name(name, index),
                    records::write_exchange(count, *own));
    ++exchange.present;
    arrived(exchange, index);
  }
  const uint64_t id = next_ticket_++;
  Waiter waiter{std::move(wanted), 0, std::move(on_records)};
  if (waiter.wanted.empty()) {
    waiter.wanted = everybody(exchange.records.size());
    waiter.missing = exchange.records.size() - exchange.present;
    if (waiter.missing > 0) exchange.waiting_for_all.push_back(id);
  } else {
    for (const auto& [first, last] : waiter.wanted) {
      for (int i = first; i <= last; ++i) {
        if (exchange.records[static_cast<size_t>(i)]) continue;
        exchange.waiting_for[i].push_back(id);
        ++waiter.missing;
      }
    }
  }
  if (waiter.missing == 0) return text_of(exchange, waiter.wanted);
  exchange.waiters.emplace(id, std::move(waiter));
  ++waiter_count_;
  *ticket = Ticket{std::string(name), id};
  return ValuePtr();
}

void Exchanges::arrived(Exchange& exchange, int index) {
  std::vector<uint64_t> served;
  if (auto entry = exchange.waiting_for.extract(index)) {
    for (const uint64_t id : entry.mapped()) {
      const auto waiter = exchange.waiters.find(id);
      if (waiter != exchange.waiters.end() && --waiter->second.missing == 0) served.push_back(id);
    }
  }
  if (exchange.present == exchange.records.size()) {
    const std::vector<uint64_t> all = std::move(exchange.waiting_for_all);
    served.insert(served.end(), all.begin(), all.end());
  }
  for (const uint64_t id : served) {
    auto waiter = exchange.waiters.extract(id);
    if (!waiter) continue;
    --waiter_count_;
    waiter.mapped().on_records(text_of(exchange, waiter.mapped().wanted));
  }
}

// The ticket stays in the lists of waiting_for and waiting_for_all; arrived() skips it.
void Exchanges::withdraw(const Ticket& ticket) {
  const auto found = exchanges_.find(ticket.name);
  if (found != exchanges_.end()) waiter_count_ -= found->second.waiters.erase(ticket.id);
}

void Exchanges::remove(std::string_view name) {
  const auto found = exchanges_.find(name);
  if (found == exchanges_.end()) return;
  if (durable_) {
    durable_->seal();
    durable_->remove_below(records::exchange_prefix(name));
    durable_->seal();
  }
  const auto waiters = std::move(found->second.waiters);
  exchanges_.erase(found);
  waiter_count_ -= waiters.size();
  for (const auto& [id, waiter] : waiters) waiter.on_records(nullptr);
}

void Exchanges::remove_all(std::string_view prefix) {
  std::vector<std::string> names;
  for (auto it = exchanges_.lower_bound(prefix);
       it != exchanges_.end() && it->first.starts_with(prefix); ++it) {
    names.push_back(it->first);
  }
  for (const std::string& name : names) remove(name);
}

std::string Exchanges::describe(std::string_view name) const {
  const auto found = exchanges_.find(name);
  if (found == exchanges_.end()) return cat("there is no exchange '", printable(name), "'");
  constexpr size_t kShown = 16;
  std::string missing;
  size_t shown = 0;
  const auto& records = found->second.records;
  for (size_t i = 0; i < records.size() && shown < kShown; ++i) {
    if (records[i]) continue;
    missing += cat(shown++ > 0 ? ", " : "", i);
  }
  const size_t count = records.size() - found->second.present;
  if (count > shown) missing += cat(" and ", count - shown, " more");
  return cat("exchange '", printable(name), "' waits for ", count, " of ", records.size(),
             count == 1 ? " records: that of party " : " records: those of parties ", missing);
}

}  // namespace hvd::rendezvous
