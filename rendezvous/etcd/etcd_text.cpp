#include "rendezvous/etcd/etcd_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/text.h"

namespace hvd::rendezvous::etcd {
namespace {

using Json = nlohmann::json;

constexpr int kUnknown = 2;  // status code of gRPC
constexpr size_t kLongestToken = 8192;

Status malformed(std::string_view what) {
  return internal_error(cat("etcd's answer to ", what, " is malformed"));
}

Json parse(ByteView text) { return Json::parse(as_text(text), nullptr, false); }

// The member of this name, or null.
const Json* member(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() ? nullptr : &*found;
}

// The gateway writes 64-bit numbers as strings, and leaves zeros out.
std::optional<int64_t> number(const Json& json, const char* name) {
  const Json* value = member(json, name);
  if (value == nullptr) return 0;
  if (value->is_number_integer()) return value->get<int64_t>();
  if (!value->is_string()) return {};
  return parse_int(value->get_ref<const std::string&>());
}

std::optional<bool> truth(const Json& json, const char* name) {
  const Json* value = member(json, name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) return {};
  return value->get<bool>();
}

std::optional<std::string> bytes(const Json& json, const char* name) {
  const Json* value = member(json, name);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return {};
  auto decoded = from_base64(value->get_ref<const std::string&>());
  if (!decoded.ok()) return {};
  return std::move(*decoded);
}

// The list "kvs" of an object. etcd leaves an empty list out.
std::optional<std::vector<KeyValue>> key_values(const Json& json) {
  std::vector<KeyValue> found;
  const Json* list = member(json, "kvs");
  if (list == nullptr) return found;
  if (!list->is_array()) return {};
  for (const Json& one : *list) {
    auto key = bytes(one, "key");
    auto value = bytes(one, "value");
    if (!one.is_object() || !key || key->empty() || !value) return {};
    found.push_back({std::move(*key), std::move(*value)});
  }
  return found;
}

void add_bytes(std::string& json, std::string_view name, std::string_view value) {
  json.append("\"").append(name).append("\":\"").append(to_base64(value)).append("\"");
}

void add_removal(std::string& json, std::string_view key, std::string_view end) {
  json += R"({"request_delete_range":{)";
  add_bytes(json, "key", key);
  if (!end.empty()) add_bytes(json += ',', "range_end", end);
  json += "}},";
}

std::string_view condition_of(Txn::Condition condition) {
  switch (condition) {
    case Txn::Condition::kHolds:
      return R"("result":"EQUAL","target":"VALUE",)";
    case Txn::Condition::kIsThere:
      return R"("result":"GREATER","target":"VERSION","version":"0",)";
    case Txn::Condition::kIsAbsent:
      return R"("result":"EQUAL","target":"VERSION","version":"0",)";
  }
  return {};
}

}  // namespace

std::string range_end_of(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && end.back() == '\xff') end.pop_back();
  if (end.empty()) return std::string(1, '\0');  // to the last key
  end.back() = static_cast<char>(end.back() + 1);
  return end;
}

std::string range_request(std::string_view begin, std::string_view end, int limit) {
  std::string json = "{";
  add_bytes(json, "key", begin);
  add_bytes(json += ',', "range_end", end);
  return json.append(",\"limit\":\"").append(std::to_string(limit)).append("\"}");
}

Result<Range> parse_range(ByteView text) {
  const Json json = parse(text);
  auto found = key_values(json);
  const auto more = truth(json, "more");
  if (!json.is_object() || !found || !more) return malformed("range");
  return Range{std::move(*found), *more};
}

std::string txn_request(const Txn& txn) {
  std::string json = R"({"compare":[{)";
  json += condition_of(txn.condition);
  if (txn.condition == Txn::Condition::kHolds) {
    add_bytes(json, "value", txn.value);
    json += ',';
  }
  add_bytes(json, "key", txn.key);
  json += R"(}],"success":[)";
  if (!txn.removed_prefix.empty()) {
    add_removal(json, txn.removed_prefix, range_end_of(txn.removed_prefix));
  }
  for (const auto& [key, value] : txn.changes) {
    if (!value) {
      add_removal(json, key, {});
      continue;
    }
    json += R"({"request_put":{)";
    add_bytes(json, "key", key);
    add_bytes(json += ',', "value", *value);
    json.append(",\"lease\":\"").append(std::to_string(txn.lease)).append("\"}},");
  }
  if (json.back() == ',') json.pop_back();
  json += R"(],"failure":[{"request_range":{)";
  add_bytes(json, "key", txn.key);
  return json.append("}}]}");
}

Result<TxnAnswer> parse_txn(ByteView text) {
  const Json json = parse(text);
  const auto is_done = truth(json, "succeeded");
  if (!json.is_object() || !is_done) return malformed("txn");
  if (*is_done) return TxnAnswer{true, {}};
  const Json* responses = member(json, "responses");
  if (responses == nullptr || !responses->is_array() || responses->size() != 1) {
    return malformed("txn");
  }
  const Json* range = member(responses->front(), "response_range");
  auto found = range != nullptr && range->is_object() ? key_values(*range) : std::nullopt;
  if (!found || found->size() > 1) return malformed("txn");
  TxnAnswer answer;
  if (!found->empty()) answer.held = std::move(found->front().value);
  return answer;
}

std::string lease_grant_request(int64_t seconds) { return cat("{\"TTL\":\"", seconds, "\"}"); }

std::string lease_request(int64_t id) { return cat("{\"ID\":\"", id, "\"}"); }

Result<Lease> parse_lease(ByteView text) {
  const Json json = parse(text);
  // The answer to a streaming call has the message in "result".
  const Json* result = member(json, "result");
  const Json& lease = result != nullptr ? *result : json;
  const auto id = number(lease, "ID");
  const auto seconds = number(lease, "TTL");
  if (!lease.is_object() || !id || *id == 0 || !seconds || *seconds < 0) return malformed("lease");
  return Lease{*id, *seconds};
}

std::string login_request(const std::string& user, const std::string& password) {
  return Json{{"name", user}, {"password", password}}.dump(-1, ' ', false,
                                                           Json::error_handler_t::replace);
}

Result<std::string> parse_login(ByteView text) {
  const Json json = parse(text);
  const Json* token = member(json, "token");
  if (token == nullptr || !token->is_string()) return malformed("authenticate");
  auto found = token->get<std::string>();
  const bool is_sound =
      !found.empty() && found.size() <= kLongestToken &&
      std::all_of(found.begin(), found.end(), [](char c) { return c > 32 && c < 127; });
  if (!is_sound) return malformed("authenticate");
  return found;
}

Fault parse_fault(ByteView text) {
  const Json json = parse(text);
  // In the answer to a streaming call, "error" is an object with the code and the message.
  const Json* error = member(json, "error");
  const Json& fault = error != nullptr && error->is_object() ? *error : json;
  auto code = number(fault, "code");
  if (!code || *code == 0) code = number(fault, "grpc_code");
  const Json* message = member(fault, "message");
  Fault result{code && *code > 0 && *code < 100 ? static_cast<int>(*code) : kUnknown, {}};
  if (message != nullptr && message->is_string()) {
    result.message = printable(message->get_ref<const std::string&>(), 300);
  } else {
    result.message = cat("'", printable(as_text(text), 100), "'");
  }
  return result;
}

}  // namespace hvd::rendezvous::etcd
