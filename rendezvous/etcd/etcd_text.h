// Formats the requests of etcd's JSON gateway (v3) that an EtcdStore needs, and parses their replies. Stateless,
// without I/O; the parsers accept any bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "rendezvous/store/durable_store.h"

namespace hvd::rendezvous::etcd {

// Returns the first key after all keys that begin with this prefix, which is not empty.
std::string range_end_of(std::string_view prefix);

struct KeyValue {
  std::string key;
  std::string value;
};

// Requests at most `limit` keys from `begin` up to, but not including, `end`, in ascending order.
std::string range_request(std::string_view begin, std::string_view end, int limit);
struct Range {
  std::vector<KeyValue> found;
  bool more = false;
};
Result<Range> parse_range(ByteView json);

// A transaction. etcd applies the changes if `key` meets the condition: it holds `value`, it exists, or
// it is absent. Otherwise etcd changes nothing, and the answer has the value of `key`.
struct Txn {
  enum class Condition { kHolds, kIsThere, kIsAbsent };
  std::string_view key;
  Condition condition = Condition::kHolds;
  std::string_view value;
  // The new value of each key; nullopt removes the key.
  std::map<std::string, std::optional<std::string_view>, std::less<>> changes;
  // Removes all keys with this prefix, if not empty. No key in `changes` has this prefix.
  std::string_view removed_prefix;
  int64_t lease = 0;  // lease of the keys that the transaction sets
};
std::string txn_request(const Txn& txn);
struct TxnAnswer {
  bool is_done = false;
  std::optional<std::string> held;  // value of the key if not is_done; nothing: absent
};
Result<TxnAnswer> parse_txn(ByteView json);

std::string lease_grant_request(int64_t seconds);
std::string lease_request(int64_t id);  // keeps a lease alive, or revokes it
// Id and time to live of a lease; 0 seconds: the lease has expired.
struct Lease {
  int64_t id = 0;
  int64_t seconds = 0;
};
Result<Lease> parse_lease(ByteView json);

std::string login_request(const std::string& user, const std::string& password);
// Returns the token that later requests carry in Authorization: printable, without spaces.
Result<std::string> parse_login(ByteView json);

// The body of etcd's answer to a failed request.
struct Fault {
  int code = 0;  // status code of gRPC
  std::string message;
};
Fault parse_fault(ByteView json);

// etcd limits the size of a request. A large record is therefore stored in pieces below a prefix, and the record's
// value names this prefix. Returns the value of a record that is stored whole.
std::string whole_value(ByteView record);
// Returns the value of a record of this size in the pieces below `prefix`, which begins with "l" and ends with
// "/".
std::string value_in_pieces(size_t size, std::string_view prefix);
// Returns the key of a piece; keys ascend with the number.
std::string piece_key(std::string_view prefix, size_t number);

struct JoinedRecords {
  Records records;                              // by name
  std::map<std::string, std::string> prefixes;  // record's name -> prefix of its pieces
  Records stale;                                // pieces without a record
};
// Joins the stored records of an earlier server. `values`: each key is "r" and the record's name.
// `pieces`: the pieces by key.
Result<JoinedRecords> join_records(const Records& values, Records pieces);

}  // namespace hvd::rendezvous::etcd
