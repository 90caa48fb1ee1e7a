#include "rendezvous/server/service.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "rendezvous/store/store.h"
#include "rendezvous/wire/signature.h"

namespace hvd::rendezvous {
namespace {

constexpr size_t kMaxClientBytes = 64;
constexpr size_t kMaxHostBytes = 255;
constexpr int64_t kMaxListed = 10'000;

Reply not_allowed(const StoreRequest& request, std::string_view allowed) {
  return {405, cat("this path does not support ", printable(request.method, 20), "; use ", allowed),
          nullptr};
}

// Returns the deadline from the parameter `wait`; without the parameter, the current time.
Result<Deadline> deadline_of(const Target& target) {
  HVD_ASSIGN_OR_RETURN(const auto wait, target.number("wait", 0, kLongestWait));
  return Deadline::after(std::chrono::milliseconds(wait.value_or(0)));
}

enum class Naming { kOptional, kRequired };

Result<CallId> call_of(const Target& target, Naming naming) {
  const auto client = target.text("client");
  HVD_ASSIGN_OR_RETURN(const auto sequence, target.number("sequence", 1, INT64_MAX));
  if (!client && !sequence && naming == Naming::kOptional) return CallId{};
  if (!client || !sequence || client->empty() || client->size() > kMaxClientBytes) {
    return invalid_argument(cat("the call needs client=<1 to ", kMaxClientBytes,
                                " bytes>&sequence=<number>, so that a repetition counts once"));
  }
  return CallId{std::string(*client), static_cast<uint64_t>(*sequence)};
}

Reply to_reply(const Status& status) { return status.ok() ? Reply{} : Reply::failure(status); }

Reply to_reply(const Result<Place>& place) {
  if (!place.ok()) return Reply::failure(place.status());
  const nlohmann::json json = {{"rank", place->rank},
                               {"size", place->size},
                               {"local_rank", place->local_rank},
                               {"local_size", place->local_size},
                               {"cross_rank", place->cross_rank},
                               {"cross_size", place->cross_size},
                               {"generation", place->generation}};
  return {200, json.dump(), nullptr};
}

Result<std::string> host_of(const Bytes& body) {
  const auto json = nlohmann::json::parse(as_text(body), nullptr, false);
  const Status malformed = invalid_argument(
      cat(R"(the body is not {"host":"<key of the host>"} with 1 to )", kMaxHostBytes, " bytes"));
  if (!json.is_object()) return malformed;
  const auto host = json.find("host");
  if (host == json.end() || !host->is_string()) return malformed;
  auto text = host->get<std::string>();
  if (text.empty() || text.size() > kMaxHostBytes) return malformed;
  return text;
}

}  // namespace

Digest Reply::digest() const {
  if (value && value->digest) return *value->digest;
  return body().empty() ? digest_of_nothing() : sha256(body());
}

Reply Reply::failure(const Status& status) {
  return {to_http(status.code()), status.message(), nullptr};
}

StoreService::Outcome StoreService::start(StoreRequest request, Done done) {
  Outcome outcome = dispatch(std::move(request), std::move(done));
  if (durable_) durable_->seal();
  return outcome;
}

StoreService::Outcome StoreService::dispatch(StoreRequest request, Done done) {
  auto target = parse_target(request.target);
  if (!target.ok()) return Reply::failure(target.status());
  Bytes body = std::move(request.body);
  if (target->resource == "keys") {
    return keys(request, std::move(*target), std::move(body), std::move(done));
  }
  if (target->resource == "swap") return swap(request, *target, body);
  if (target->resource == "list") return list(request, *target);
  if (target->resource == "watch") return watch(request, *target, std::move(done));
  if (target->resource == "exchange") {
    return exchange(request, *target, std::move(body), std::move(done));
  }
  if (target->resource == "join") return join(request, *target, body, std::move(done));
  return Reply::failure(not_found(cat("there is no resource /v1/", printable(target->resource, 40),
                                      "; use hello, keys, swap, list, watch, exchange or join")));
}

StoreService::Outcome StoreService::keys(const StoreRequest& request, Target target, Bytes body,
                                         Done done) {
  if (const Status status = check_key(target.name); !status.ok()) return Reply::failure(status);
  if (request.method == "GET") {
    const auto deadline = deadline_of(target);
    if (!deadline.ok()) return Reply::failure(deadline.status());
    if (ValuePtr value = state_.get(target.name)) return Reply{200, {}, std::move(value)};
    if (target.text("wait")) return wait(target.name, *deadline, std::move(done));
    return Reply::failure(not_found(cat("there is no key '", printable(target.name), "'")));
  }
  const auto call = call_of(target, Naming::kOptional);
  if (!call.ok()) return Reply::failure(call.status());
  if (request.method == "PUT") {
    auto value = std::make_shared<Value>(Value{std::move(body), request.digest});
    return to_reply(state_.set(target.name, std::move(value), *call));
  }
  if (request.method == "DELETE") return to_reply(state_.remove(target.name, *call));
  return not_allowed(request, "GET, PUT or DELETE");
}

StoreService::Outcome StoreService::wait(const std::string& key, Deadline deadline, Done done) {
  Pending pending;
  pending.deadline = deadline;
  const StoreState::Ticket ticket = state_.wait(key, [done = std::move(done)](ValuePtr value) {
    done({200, {}, std::move(value)});
  });
  pending.withdraw = [this, ticket] { state_.withdraw(ticket); };
  pending.expired = [key] {
    return Reply::failure(
        deadline_exceeded(cat("the key '", printable(key), "' was not set in time")));
  };
  return pending;
}

StoreService::Outcome StoreService::swap(const StoreRequest& request, const Target& target,
                                         const Bytes& body) {
  if (request.method != "POST") return not_allowed(request, "POST");
  const auto call = call_of(target, Naming::kRequired);
  if (!call.ok()) return Reply::failure(call.status());
  const auto size = target.number("expected", 0, static_cast<int64_t>(body.size()));
  if (!size.ok()) return Reply::failure(size.status());
  const auto begin = static_cast<size_t>(size->value_or(0));
  std::optional<ByteView> expected;
  if (*size) expected = ByteView(body).first(begin);
  const ByteView rest = ByteView(body).subspan(begin);
  auto value = std::make_shared<Value>(Value{Bytes(rest.begin(), rest.end()), {}});
  const auto result = state_.compare_and_set(target.name, expected, std::move(value), *call);
  if (!result.ok()) return Reply::failure(result.status());
  return Reply{200, to_text(result->swapped, result->value ? &result->value->bytes : nullptr),
               nullptr};
}

StoreService::Outcome StoreService::list(const StoreRequest& request, const Target& target) {
  if (request.method != "GET") return not_allowed(request, "GET");
  const auto limit = target.number("limit", 1, kMaxListed);
  if (!limit.ok()) return Reply::failure(limit.status());
  const auto most = static_cast<size_t>(limit->value_or(kMaxListed));
  KeyPage page;
  page.keys = state_.list(target.name, target.text("after").value_or(""), most + 1);
  page.more = page.keys.size() > most;
  if (page.more) page.keys.pop_back();
  return Reply{200, to_text(page), nullptr};
}

StoreService::Outcome StoreService::watch(const StoreRequest& request, const Target& target,
                                          Done done) {
  if (request.method != "GET") return not_allowed(request, "GET");
  const auto deadline = deadline_of(target);
  if (!deadline.ok()) return Reply::failure(deadline.status());
  const auto after = target.number("after", 0, INT64_MAX);
  if (!after.ok()) return Reply::failure(after.status());
  if (!*after) return Reply{200, to_text(Changes{state_.revision(), {}}), nullptr};
  std::optional<StoreState::Ticket> ticket;
  const auto found = state_.watch(
      target.name, static_cast<uint64_t>(**after),
      [done = std::move(done)](const Changes& changes) {
        done({200, to_text(changes), nullptr});
      },
      &ticket);
  if (!found.ok()) return Reply::failure(found.status());
  if (!ticket) return Reply{200, to_text(*found), nullptr};
  Pending pending;
  pending.deadline = *deadline;
  pending.withdraw = [this, ticket = *ticket] { state_.withdraw(ticket); };
  pending.expired = [prefix = target.name] {
    return Reply::failure(deadline_exceeded(
        cat("no key that begins with '", printable(prefix), "' changed in time")));
  };
  return pending;
}

void StoreService::remove_all(std::string_view prefix) {
  for (const std::string& key : state_.list(prefix, "", state_.key_count())) {
    static_cast<void>(state_.remove(key));
  }
  exchanges_.remove_all(prefix);
}

StoreService::Outcome StoreService::exchange(const StoreRequest& request, const Target& target,
                                             Bytes body, Done done) {
  if (request.method == "DELETE") {
    exchanges_.remove(target.name);
    return Reply{};
  }
  if (request.method != "POST") return not_allowed(request, "POST or DELETE");
  const auto deadline = deadline_of(target);
  if (!deadline.ok()) return Reply::failure(deadline.status());
  const auto count = target.number("count", 1, kMaxParties);
  if (!count.ok()) return Reply::failure(count.status());
  const auto index = target.number("index", 0, kMaxParties - 1);
  if (!index.ok()) return Reply::failure(index.status());
  if (!*count || !*index) {
    return Reply::failure(invalid_argument("the call needs count=<number>&index=<number>"));
  }
  Ranges wanted;
  if (const auto text = target.text("want")) {
    auto ranges = parse_ranges(*text, static_cast<int>(**count));
    if (!ranges.ok()) return Reply::failure(ranges.status());
    wanted = std::move(*ranges);
  }
  std::optional<Exchanges::Ticket> ticket;
  auto records = exchanges_.join(
      target.name, static_cast<int>(**count), static_cast<int>(**index), std::move(body),
      std::move(wanted),
      [done = std::move(done), name = target.name](ValuePtr value) {
        done(value ? Reply{200, {}, std::move(value)} : Reply::failure(forgotten(name)));
      },
      &ticket);
  if (!records.ok()) return Reply::failure(records.status());
  if (!ticket) return Reply{200, {}, std::move(*records)};
  Pending pending;
  pending.deadline = *deadline;
  pending.withdraw = [this, ticket = *ticket] { exchanges_.withdraw(ticket); };
  pending.expired = [this, name = target.name] {
    return Reply::failure(deadline_exceeded(exchanges_.describe(name)));
  };
  return pending;
}

StoreService::Outcome StoreService::join(const StoreRequest& request, const Target& target,
                                         const Bytes& body, Done done) {
  if (request.method != "POST") return not_allowed(request, "POST");
  const auto client = target.text("client");
  if (!client || client->empty() || client->size() > kMaxClientBytes) {
    return Reply::failure(invalid_argument(cat("the call needs client=<1 to ", kMaxClientBytes,
                                               " bytes>, so that a repetition counts once")));
  }
  const auto deadline = deadline_of(target);
  if (!deadline.ok()) return Reply::failure(deadline.status());
  const auto host = host_of(body);
  if (!host.ok()) return Reply::failure(host.status());
  uint64_t ticket = 0;
  const auto place = membership_.join(
      *client, *host, [done = std::move(done)](const Result<Place>& p) { done(to_reply(p)); },
      ticket);
  if (!place.ok()) return Reply::failure(place.status());
  if (*place) return to_reply(Result<Place>(**place));
  Pending pending;
  pending.deadline = *deadline;
  pending.withdraw = [this, worker = std::string(*client), ticket] {
    membership_.withdraw(worker, ticket);
  };
  pending.expired = [this] { return Reply::failure(deadline_exceeded(membership_.describe())); };
  return pending;
}

Status StoreService::resume(const Records& records, DurableStore* durable) {
  for (const auto& [name, record] : records) {
    Status status;
    const std::string_view rest = std::string_view(name).substr(std::min<size_t>(name.size(), 1));
    switch (name.empty() ? '\0' : name.front()) {
      case static_cast<char>(records::RecordKind::kExchange):
        status = exchanges_.restore(rest, record);
        break;
      case static_cast<char>(records::RecordKind::kPlaces):
        status = membership_.restore(record);
        break;
      default:
        status = state_.restore(name, record);
    }
    if (!status.ok()) return status;
  }
  durable_ = durable;
  state_.write_to(durable);
  exchanges_.write_to(durable);
  membership_.write_to(durable);
  return {};
}

}  // namespace hvd::rendezvous
