#include "rendezvous/etcd/etcd_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "base/text.h"

namespace hvd::rendezvous::etcd {

namespace {

using Json = nlohmann::json;

// First byte of a value. The record follows kWhole; the size of the record and the prefix of its
// pieces follow kInPieces.
constexpr char kWhole = 'w';
constexpr char kInPieces = 'p';

constexpr int kUnknown = 2;  // status code of gRPC
constexpr size_t kLongestToken = 8192;

Status malformed(std::string_view what) {
  return internal_error(cat("etcd's answer to ", what, " is malformed"));
}

Json parse(ByteView text) { return Json::parse(as_text(text), nullptr, false); }

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

// Returns the list "kvs" of an object. etcd leaves an empty list out.
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
  if (end.empty()) return std::string(1, '\0');  // etcd's notation for "up to the last key"
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

std::string whole_value(ByteView record) {
  std::string value(1, kWhole);
  value += as_text(record);
  return value;
}

std::string value_in_pieces(size_t size, std::string_view prefix) {
  return cat(kInPieces, size, " ", prefix);
}

std::string piece_key(std::string_view prefix, size_t number) {
  constexpr size_t kDigits = 8;
  std::string digits = std::to_string(number);
  digits.insert(0, kDigits - digits.size(), '0');
  return cat(prefix, digits);
}

Result<JoinedRecords> join_records(const Records& values, Records pieces) {
  JoinedRecords joined;
  for (const auto& [key, value] : values) {
    const std::string name = key.substr(1);
    const std::string_view text = as_text(value);
    const Status malformed =
        failed_precondition(cat("the record '", printable(key), "' is malformed"));
    if (text.starts_with(kWhole)) {
      joined.records.emplace(name, to_bytes(text.substr(1)));
      continue;
    }
    const size_t space = text.find(' ');
    if (!text.starts_with(kInPieces) || space == std::string_view::npos) return malformed;
    const std::string prefix(text.substr(space + 1));
    // The prefix is l.../ with one slash: any other could be the prefix of several records' pieces.
    if (!prefix.starts_with('l') || prefix.find('/') != prefix.size() - 1) return malformed;
    Bytes record;
    for (auto piece = pieces.lower_bound(prefix);
         piece != pieces.end() && piece->first.starts_with(prefix);) {
      record.insert(record.end(), piece->second.begin(), piece->second.end());
      piece = pieces.erase(piece);
    }
    const auto size = parse_int(text.substr(1, space - 1));
    if (!size || static_cast<uint64_t>(*size) != record.size()) return malformed;
    joined.records.emplace(name, std::move(record));
    joined.prefixes.emplace(name, prefix);
  }
  joined.stale = std::move(pieces);
  return joined;
}

}  // namespace hvd::rendezvous::etcd
