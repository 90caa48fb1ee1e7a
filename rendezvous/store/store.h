// The interface of a job's key-value store, through which processes that share only an address find each other. Each
// call blocks its thread until it is complete or its deadline has passed. Several threads may call concurrently. A key
// is one byte or more, any bytes; all keys belong to one job.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"

namespace hvd::rendezvous {

// Limits of every implementation. Calls that exceed them return kInvalidArgument.
constexpr size_t kMaxKeyBytes = 4096;
constexpr size_t kMaxValueBytes = 64 * 1024 * 1024;
constexpr int kMaxParties = 1 << 20;  // parties of an exchange

// Result of a compare-and-set, with the current value of the key; without a value, the key is absent.
struct Swap {
  bool swapped = false;
  std::optional<Bytes> value;
};

// One of the `count` parties of an exchange. The party wants the records of the parties in `wanted`, or of
// all parties if `wanted` is empty.
struct Party {
  int index = 0;
  int count = 1;
  std::vector<int> wanted;
};

class Store {
 public:
  virtual ~Store() = default;

  virtual Status set(std::string_view key, ByteView value, Deadline deadline) = 0;
  // Returns kNotFound if the key is absent.
  virtual Result<Bytes> get(std::string_view key, Deadline deadline) = 0;
  // Blocks until the key is set. kDeadlineExceeded names the key.
  virtual Result<Bytes> wait(std::string_view key, Deadline deadline) = 0;
  // Returns ok also if the key is absent.
  virtual Status remove(std::string_view key, Deadline deadline) = 0;
  // Sets the key if its value is `expected`; without `expected`, if the key is absent. The server executes
  // the call once, even if a lost reply makes the client repeat its request.
  virtual Result<Swap> compare_and_set(std::string_view key, std::optional<ByteView> expected,
                                       ByteView value, Deadline deadline) = 0;
  // Stores a record for other parties. When all wanted records have arrived, returns them in the order
  // of party.wanted, or ascending by index. The exchange stays until forget(): use each name once.
  // kDeadlineExceeded names the missing parties.
  virtual Result<std::vector<Bytes>> exchange(std::string_view name, const Party& party,
                                              ByteView record, Deadline deadline) = 0;
  virtual Status forget(std::string_view exchange, Deadline deadline) = 0;
  // Releases resources that the store keeps only for the next call, for example a connection.
  virtual void rest() {}
};

// The checks of keys and values that every Store makes, and the errors of these checks.
Status check_key(std::string_view key);
Status check_value(std::string_view key, size_t size);

}  // namespace hvd::rendezvous
