// Values and keys under which etcd keeps records. etcd limits the size of a request: a large record is
// stored in pieces below a prefix, and its value names the prefix. Without state and I/O; join_records
// accepts any bytes. Called by EtcdStore.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "rendezvous/store/durable_store.h"

namespace hvd::rendezvous::etcd {

// The value of a record that is stored whole.
std::string whole_value(ByteView record);
// The value of a record of this size in the pieces below `prefix`, which begins with "l" and ends with
// "/".
std::string value_in_pieces(size_t size, std::string_view prefix);
// The key of a piece; keys ascend with the number.
std::string piece_key(std::string_view prefix, size_t number);

struct JoinedRecords {
  Records records;                              // by name
  std::map<std::string, std::string> prefixes;  // from a record's name to the prefix of its pieces
  Records stale;                                // pieces without a record
};
// Joins what an earlier server has stored. `values`: by key, "r" and the record's name. `pieces`: by
// key.
Result<JoinedRecords> join_records(const Records& values, Records pieces);

}  // namespace hvd::rendezvous::etcd
