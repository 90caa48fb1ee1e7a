// How processes that share only an address find each other: a keyed store. A seam: memory, HTTP.
// Every call blocks the calling thread until it is done or its deadline passed; any thread may
// call, several at once. Keys are any bytes, at least one, and belong to the job.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"

namespace hvd::rendezvous {

// Longer ones are kInvalidArgument, in every implementation.
constexpr size_t kMaxKeyBytes = 4096;
constexpr size_t kMaxValueBytes = 64 * 1024 * 1024;
constexpr std::chrono::milliseconds kLongestLifetime = std::chrono::hours(30 * 24);

// What a compare-and-set has done, and what the key holds now; nothing: it is not there.
struct Swap {
  bool swapped = false;
  std::optional<Bytes> value;
};

// Keys below a prefix that were set or removed, in that order, up to a revision of the store.
struct Changes {
  struct Change {
    std::string key;
    bool removed = false;
    bool operator==(const Change&) const = default;
  };
  uint64_t revision = 0;
  std::vector<Change> changes;
};

// One of `count` who exchange records, and whose records it wants: those of these parties, or of
// all when it names none.
struct Party {
  int index = 0;
  int count = 1;
  std::vector<int> wanted;
};

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
  // As set; the key removes itself after this time, unless it is set again before.
  virtual Status set_for(std::string_view key, ByteView value, std::chrono::milliseconds lifetime,
                         Deadline deadline) = 0;
  // Sets the key if it holds `expected`, or is not there when nothing is expected. Done once,
  // however often a lost reply made the client repeat it.
  virtual Result<Swap> compare_and_set(std::string_view key, std::optional<ByteView> expected,
                                       ByteView value, Deadline deadline) = 0;
  // The keys that begin with the prefix, which may be empty, ascending by their bytes.
  virtual Result<std::vector<std::string>> list(std::string_view prefix, Deadline deadline) = 0;
  // Blocks until a key with this prefix has changed after `revision`, one that an earlier watch
  // gave. Without a revision: at once, with that of now and no change. kFailedPrecondition when
  // what happened since is not remembered any more: then list and begin anew.
  virtual Result<Changes> watch(std::string_view prefix, std::optional<uint64_t> revision,
                                Deadline deadline) = 0;
  // Leaves a record for others and returns those that this party wants, in that order (of all:
  // ascending), as soon as they are there. The exchange is kept until `forget`, so a name is good
  // for one round. kDeadlineExceeded says who is missing.
  virtual Result<std::vector<Bytes>> exchange(std::string_view name, const Party& party,
                                              ByteView record, Deadline deadline) = 0;
  virtual Status forget(std::string_view exchange, Deadline deadline) = 0;
  // Lets go of what is only kept for the next call, such as a connection.
  virtual void rest() {}
};

}  // namespace hvd::rendezvous
