#include "rendezvous/store/answered_calls.h"

#include <utility>

#include "base/text.h"
#include "rendezvous/store/durable_store.h"
#include "rendezvous/store/records.h"

namespace hvd::rendezvous {
namespace {

// Many more than a job has ranks; the table then takes about 100 MiB.
constexpr size_t kMaxClients = 1 << 20;

}  // namespace

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
