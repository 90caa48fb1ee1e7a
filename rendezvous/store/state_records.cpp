// Writes the records of a State, and restores them.
#include "base/text.h"
#include "rendezvous/store/durable_store.h"
#include "rendezvous/store/records.h"
#include "rendezvous/store/state.h"
#include "rendezvous/store/store_checks.h"

namespace hvd::rendezvous {

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

}  // namespace hvd::rendezvous
