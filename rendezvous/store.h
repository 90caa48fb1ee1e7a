// How processes that share only an address find each other: a keyed store. A seam: memory, HTTP.
// Every call blocks the calling thread until it is done or its deadline passed; any thread may
// call, several at once. Keys are any bytes, at least one, and belong to the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"

namespace hvd::rendezvous {

// Longer ones are kInvalidArgument, in every implementation.
constexpr size_t kMaxKeyBytes = 4096;
constexpr size_t kMaxValueBytes = 64 * 1024 * 1024;

class Store {
 public:
  virtual ~Store() = default;

  virtual Status set(std::string_view key, ByteView value, Deadline deadline) = 0;
  // kNotFound when there is none now.
  virtual Result<Bytes> get(std::string_view key, Deadline deadline) = 0;
  // Blocks until the key is set. kDeadlineExceeded names the key.
  virtual Result<Bytes> wait(std::string_view key, Deadline deadline) = 0;
  // Adds to a decimal counter that begins at 0; the new value. Counted once, however often a lost
  // reply made the client repeat it.
  virtual Result<int64_t> add(std::string_view key, int64_t amount, Deadline deadline) = 0;
  // Returns when `count` parties have called it with this name; then the name is free for the next
  // round. kDeadlineExceeded says how many are missing, and the caller no longer counts as there.
  virtual Status fence(std::string_view name, int count, Deadline deadline) = 0;
  // Fine when there is none.
  virtual Status remove(std::string_view key, Deadline deadline) = 0;
};

}  // namespace hvd::rendezvous
