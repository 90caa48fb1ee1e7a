// Requests and answers of etcd's JSON gateway (v3), as far as an EtcdStore needs them. Pure;
// parsers trust nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace hvd::rendezvous::etcd {

std::string to_base64(std::string_view bytes);
Result<std::string> from_base64(std::string_view text);

// The end of the range of all keys that begin with a prefix, which is not empty.
std::string range_end_of(std::string_view prefix);

struct KeyValue {
  std::string key;
  std::string value;
};

// At most `limit` keys from `begin`, before `end`, ascending.
std::string range_request(std::string_view begin, std::string_view end, int limit);
struct Range {
  std::vector<KeyValue> found;
  bool more = false;
};
Result<Range> parse_range(ByteView json);

// What is done when a key holds a value (nothing: when it is there, whatever it holds; or when it
// is absent); else the answer brings what the key holds.
struct Txn {
  enum class Condition { kHolds, kIsThere, kIsAbsent };
  std::string_view key;
  Condition condition = Condition::kHolds;
  std::string_view value;
  // Value, or nothing: the key is removed. No key twice.
  std::map<std::string, std::optional<std::string_view>, std::less<>> changes;
  // Removed with all that begins so, if not empty; no change is among them.
  std::string_view removed_prefix;
  int64_t lease = 0;  // of what is set
};
std::string txn_request(const Txn& txn);
struct TxnAnswer {
  bool is_done = false;
  std::optional<std::string> held;  // by the key, when it is not done
};
Result<TxnAnswer> parse_txn(ByteView json);

std::string lease_grant_request(int64_t seconds);
std::string lease_request(int64_t id);  // to keep it alive, and to revoke it
// Its id and time to live; 0: there is no such lease any more.
struct Lease {
  int64_t id = 0;
  int64_t seconds = 0;
};
Result<Lease> parse_lease(ByteView json);

std::string login_request(const std::string& user, const std::string& password);
// What later requests carry in Authorization: printable, without spaces.
Result<std::string> parse_login(ByteView json);

// What a failed request is answered with.
struct Fault {
  int code = 0;  // of gRPC
  std::string message;
};
Fault parse_fault(ByteView json);

}  // namespace hvd::rendezvous::etcd
