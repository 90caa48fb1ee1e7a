#include "rendezvous/client/http_store.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/fork_guard.h"
#include "base/text.h"
#include "rendezvous/client/agent_store.h"
#include "rendezvous/client/http_store_call.h"
#include "rendezvous/store/exchange.h"
#include "rendezvous/store/store_checks.h"
#include "rendezvous/wire/store_text.h"

namespace hvd::rendezvous {
namespace {

Result<Place> parse_place(const Bytes& body) {
  const auto json = nlohmann::json::parse(as_text(body), nullptr, false);
  Place place;
  const std::pair<const char*, int*> fields[] = {{"rank", &place.rank},
                                                 {"size", &place.size},
                                                 {"local_rank", &place.local_rank},
                                                 {"local_size", &place.local_size},
                                                 {"cross_rank", &place.cross_rank},
                                                 {"cross_size", &place.cross_size},
                                                 {"generation", &place.generation}};
  for (const auto& [name, value] : fields) {
    const auto found = json.is_object() ? json.find(name) : json.end();
    if (found == json.end() || !found->is_number_integer()) {
      return internal_error(cat("the server's answer to join has no number '", name, "'"));
    }
    *value = found->get<int>();
  }
  return place;
}

}  // namespace

HttpStore::HttpStore(net::Endpoint endpoint, Secret secret, HttpStoreOptions options)
    : endpoint_(std::move(endpoint)),
      secret_(std::move(secret)),
      options_(options),
      worker_(options_.worker.empty() ? make_nonce() : options_.worker),
      process_(process_after_forks()) {}

HttpStore::~HttpStore() = default;

Result<std::unique_ptr<HttpStore>> HttpStore::open(std::string_view address, Secret secret,
                                                   HttpStoreOptions options) {
  constexpr std::string_view kHttps = "https://";
  if (address.starts_with(kAgentScheme)) {
    address.remove_prefix(kAgentScheme.size());
    HVD_ASSIGN_OR_RETURN(const auto store, net::parse_endpoint(cat("unix:", address)));
    return std::unique_ptr<HttpStore>(
        std::make_unique<AgentStore>(store, options.ranks, std::move(secret), options));
  }
  std::string endpoint_text(address);
  if (address.starts_with(kHttps)) {
    address.remove_prefix(kHttps.size());
    if (address.ends_with('/')) address.remove_suffix(1);
    endpoint_text = cat("tcp:", address);
    if (!options.tls) options.tls.emplace();
    options.tls->ca_setting = "HOROVOD_STORE_CA";
  } else {
    options.tls.reset();
  }
  HVD_ASSIGN_OR_RETURN(net::Endpoint endpoint, net::parse_endpoint(endpoint_text));
  return std::make_unique<HttpStore>(std::move(endpoint), std::move(secret), options);
}

Status HttpStore::set(std::string_view key, ByteView value, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  HVD_RETURN_IF_ERROR(check_value(key, value.size()));
  return call({"PUT", {"keys", std::string(key), {}}, value, deadline, true, false}).status();
}

Result<Bytes> HttpStore::get(std::string_view key, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  return call({"GET", {"keys", std::string(key), {}}, {}, deadline, false, false});
}

Result<Bytes> HttpStore::wait(std::string_view key, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  return call({"GET", {"keys", std::string(key), {}}, {}, deadline, false, true});
}

Status HttpStore::remove(std::string_view key, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  return call({"DELETE", {"keys", std::string(key), {}}, {}, deadline, true, false}).status();
}

Result<Swap> HttpStore::compare_and_set(std::string_view key, std::optional<ByteView> expected,
                                        ByteView value, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  HVD_RETURN_IF_ERROR(check_value(key, value.size()));
  Target target{"swap", std::string(key), {}};
  Bytes body;
  if (expected) {
    HVD_RETURN_IF_ERROR(check_value(key, expected->size() + value.size()));
    target.query["expected"] = std::to_string(expected->size());
    body.assign(expected->begin(), expected->end());
  }
  body.insert(body.end(), value.begin(), value.end());
  HVD_ASSIGN_OR_RETURN(const Bytes answer,
                       call({"POST", std::move(target), body, deadline, true, false}));
  return parse_swap(answer);
}

Result<std::vector<std::string>> HttpStore::list(std::string_view prefix, Deadline deadline) {
  std::vector<std::string> keys;
  for (;;) {
    Target target{"list", std::string(prefix), {}};
    if (!keys.empty()) target.query["after"] = keys.back();
    HVD_ASSIGN_OR_RETURN(const Bytes answer,
                         call({"GET", std::move(target), {}, deadline, false, false}));
    HVD_ASSIGN_OR_RETURN(KeyPage page, parse_keys(answer));
    if (page.more && page.keys.empty()) {
      return internal_error("the server's list continues without a key");
    }
    std::move(page.keys.begin(), page.keys.end(), std::back_inserter(keys));
    if (!page.more) return keys;
  }
}

Result<Changes> HttpStore::watch(std::string_view prefix, std::optional<uint64_t> revision,
                                 Deadline deadline) {
  Target target{"watch", std::string(prefix), {}};
  if (revision) target.query["after"] = std::to_string(*revision);
  HVD_ASSIGN_OR_RETURN(const Bytes answer,
                       call({"GET", std::move(target), {}, deadline, false, revision.has_value()}));
  return parse_changes(answer);
}

Result<std::vector<Bytes>> HttpStore::exchange(std::string_view name, const Party& party,
                                               ByteView record, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(name));
  HVD_RETURN_IF_ERROR(check_value(name, record.size()));
  HVD_RETURN_IF_ERROR(check_party(party));
  Target target{"exchange",
                std::string(name),
                {{"count", std::to_string(party.count)}, {"index", std::to_string(party.index)}}};
  if (!party.wanted.empty()) target.query["want"] = to_text(ranges_of(party.wanted));
  HVD_ASSIGN_OR_RETURN(const Bytes answer,
                       call({"POST", std::move(target), record, deadline, false, true}));
  return records_for(party, answer);
}

Status HttpStore::forget(std::string_view exchange, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(exchange));
  Target target{"exchange", std::string(exchange), {}};
  return call({"DELETE", std::move(target), {}, deadline, false, false}).status();
}

Result<Place> HttpStore::join(std::string_view host, Deadline deadline) {
  using Json = nlohmann::json;
  const std::string body =
      Json{{"host", host}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  Target target{"join", {}, {{"client", worker_}}};
  HVD_ASSIGN_OR_RETURN(const Bytes answer,
                       call({"POST", std::move(target), as_bytes(body), deadline, false, true}));
  return parse_place(answer);
}

}  // namespace hvd::rendezvous
