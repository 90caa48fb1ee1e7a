// What of a State outlives its server.
#include "base/text.h"
#include "rendezvous/store/keeper.h"
#include "rendezvous/store/kept.h"
#include "rendezvous/store/state.h"
#include "rendezvous/store/store_checks.h"

namespace hvd::rendezvous {

using kept::Kind;

// Calls that changed nothing are not kept: doing them again does no harm.
void State::keep_outcome(const CallId& call, int64_t number) {
  if (!keeper_ || call.client.empty()) return;
  keeper_->put(kept::name(Kind::kOutcome, call.client),
               kept::write_outcome({call.sequence, number}));
}

void State::keep_revision() {
  keeper_->put(kept::name(Kind::kRevision), kept::write_revision(changes_.revision()));
}

// A party that reads that its fence has opened must not leave others behind at a closed one: all
// are kept in one record, which goes when each has its own.
void State::keep_fence(const Fence& fence) {
  std::vector<CallId> calls;
  for (const auto& [id, arrival] : fence.arrivals) {
    if (!arrival.party.call.client.empty()) calls.push_back(arrival.party.call);
  }
  const std::string name = kept::name(Kind::kFence, std::to_string(next_ticket_++));
  keeper_->put(name, kept::write_calls(calls));
  keeper_->seal();
  size_t together = 0;
  for (const CallId& call : calls) {
    keep_outcome(call, 0);
    if (++together % Keeper::kMostTogether == 0) keeper_->seal();
  }
  keeper_->seal();
  keeper_->remove(name);
  keeper_->seal();
}

Status State::restore(std::string_view record_name, ByteView record) {
  if (record_name.empty()) return invalid_argument("a kept record has no name");
  const std::string_view name = record_name.substr(1);
  switch (static_cast<Kind>(record_name.front())) {
    case Kind::kValue: {
      HVD_RETURN_IF_ERROR(check_key(name));
      HVD_ASSIGN_OR_RETURN(kept::KeptValue value, kept::read_value(record));
      put(name, std::make_shared<Value>(Value{std::move(value.bytes), {}}), value.expires);
      return {};
    }
    case Kind::kOutcome: {
      HVD_ASSIGN_OR_RETURN(const kept::KeptOutcome outcome, kept::read_outcome(record));
      remember({std::string(name), outcome.sequence}, {}, outcome.number);
      return {};
    }
    case Kind::kFence: {
      HVD_ASSIGN_OR_RETURN(const std::vector<CallId> calls, kept::read_calls(record));
      for (const CallId& call : calls) {
        const auto last = outcomes_.find(call.client);
        if (last != outcomes_.end() && last->second.sequence >= call.sequence) continue;
        remember(call, {});
        keep_outcome(call, 0);
        if (keeper_) keeper_->seal();
      }
      return {};
    }
    case Kind::kRevision: {
      HVD_ASSIGN_OR_RETURN(const uint64_t revision, kept::read_revision(record));
      changes_ = ChangeLog(revision);
      return {};
    }
    default:
      return invalid_argument(cat("'", printable(record_name), "' is no name of a kept record"));
  }
}

}  // namespace hvd::rendezvous
