// The key-value store through which ranks exchange records before they have links: an interface to the
// part of the job's store that the mesh needs. The built-in controller implements this interface.
#pragma once

#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/text.h"

namespace hvd::collectives {

class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual Status set(std::string_view key, ByteView value) = 0;
  // Waits for the key until the deadline.
  virtual Result<Bytes> get(std::string_view key, Deadline deadline) = 0;
  // Stores this party's record and returns the records of `wanted`, or of all parties if `wanted`
  // is empty. `wanted` must be empty for all parties or for none. A store may implement the
  // exchange in one request per rank, or in one per host if all ranks want all records.
  virtual Result<std::vector<Bytes>> exchange(std::string_view name, int32_t party, int32_t count,
                                              ByteView record, const std::vector<int32_t>& wanted,
                                              Deadline deadline) {
    const auto key = [name](int32_t index) { return cat(name, "/", index); };
    HVD_RETURN_IF_ERROR(set(key(party), record));
    std::vector<Bytes> records;
    for (int32_t i = 0; i < (wanted.empty() ? count : static_cast<int32_t>(wanted.size())); ++i) {
      const int32_t index = wanted.empty() ? i : wanted[static_cast<size_t>(i)];
      if (index == party) {
        records.emplace_back(record.begin(), record.end());
        continue;
      }
      HVD_ASSIGN_OR_RETURN(Bytes bytes, get(key(index), deadline));
      records.push_back(std::move(bytes));
    }
    return records;
  }
};

}  // namespace hvd::collectives
