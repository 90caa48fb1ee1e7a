// The key-value store through which ranks exchange records before they have links: an interface to the
// part of the job's store that the mesh needs. The built-in controller implements this interface.
#pragma once

#include <span>
#include <string>
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

// Maximum number of ranks that the error names; time limit of the last check of each rank.
constexpr size_t kMostNamed = 8;
constexpr double kLookAgainSeconds = 0.05;

// Returns an error that names the missing ranks, by their `numbers` if not empty, and the call that
// they have not made. Calls has_come(rank) at most once for each rank.
template <typename HasCome>
Status late_ranks(int32_t self, int32_t size, std::string_view undone, HasCome has_come,
                  std::span<const int32_t> numbers = {}) {
  std::vector<int32_t> late;
  for (int32_t rank = 0; rank < size && late.size() < kMostNamed; ++rank) {
    if (rank == self || has_come(rank)) continue;
    late.push_back(numbers.empty() ? rank : numbers[static_cast<size_t>(rank)]);
  }
  if (late.empty()) {
    return deadline_exceeded(
        "the records of the other ranks came too late, or the job's store gave them too late; "
        "raise "
        "HOROVOD_INIT_TIMEOUT and HOROVOD_START_TIMEOUT, or check the network to HOROVOD_STORE");
  }
  std::string names = cat(late[0]);
  for (size_t i = 1; i < late.size(); ++i) {
    names += cat(i + 1 < late.size() ? ", " : " and ", late[i]);
  }
  const bool one = late.size() == 1;
  const bool capped = late.size() == kMostNamed;
  return deadline_exceeded(cat(one ? "rank " : "ranks ", names, capped ? " and perhaps more" : "",
                               one ? " has" : " have", " not ", undone));
}

}  // namespace hvd::collectives
