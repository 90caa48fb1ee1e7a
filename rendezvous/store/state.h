// The content of a store. Owns the values, the callbacks that wait for values, the log of changes and the answered
// calls. No I/O, no clock, no lock; one thread at a time. Callbacks run inside the call that triggers them, and
// must not call this object.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secrets/secret.h"

namespace hvd::rendezvous {

// Keys below a prefix that were set or removed, in the order of the changes, up to a revision of the store.
struct Changes {
  struct Change {
    std::string key;
    bool removed = false;
    bool operator==(const Change&) const = default;
  };
  uint64_t revision = 0;
  std::vector<Change> changes;
};

// The log of changed keys, in order, and the clients that wait for the next change below a prefix. Keeps a bounded
// number of changes. No I/O; one thread at a time. Callbacks run inside add(), and must not call this object.
class ChangeLog {
 public:
  using OnChange = std::function<void(const Changes&)>;

  // Begins at this revision, as if all earlier changes were forgotten.
  explicit ChangeLog(uint64_t revision = 0) : revision_(revision) {}

  uint64_t revision() const { return revision_; }
  void add(std::string_view key, bool removed);
  // Returns the changes below the prefix after a revision, possibly none. Returns an error if the log has
  // forgotten some of these changes, or if the revision is higher than revision().
  Result<Changes> after(uint64_t revision, std::string_view prefix) const;
  // Calls on_change once, at the next change below the prefix.
  uint64_t wait(std::string_view prefix, OnChange on_change);
  // Ends a wait. Does nothing if on_change was called.
  void withdraw(uint64_t ticket) { watchers_.erase(ticket); }
  size_t watcher_count() const { return watchers_.size(); }

 private:
  struct Watcher {
    std::string prefix;
    OnChange on_change;
  };

  uint64_t revision_;
  std::deque<Changes::Change> log_;  // the last change has the number revision_
  size_t log_bytes_ = 0;             // bytes of the keys in log_
  std::map<uint64_t, Watcher> watchers_;
  uint64_t next_ticket_ = 1;
};

// A value of a server's store. StoreState and the replies that send the value share its ownership.
// Immutable.
struct Value {
  Bytes bytes;
  std::optional<Digest> digest;  // SHA-256 of the bytes, if the signature check has computed it
};
using ValuePtr = std::shared_ptr<const Value>;

class DurableStore;

// Identifies one call of one client, so that the store recognises a repetition. A client makes one such
// call at a time, with increasing numbers. The store does not remember a call with an empty client.
struct CallId {
  std::string client;
  uint64_t sequence = 0;
};

// The last call of each client, and its answer: a repeated call gets the same answer and changes nothing. Writes these
// answers to the durable store.
class AnsweredCalls {
 public:
  struct Answer {
    uint64_t sequence = 0;
    Status status;
    bool swapped = false;  // compare-and-set: whether the call set the key
    ValuePtr value;        // compare-and-set: the current value
  };

  // Sets the durable store to which each later record is written.
  void write_to(DurableStore* durable) { durable_ = durable; }

  // Returns the answer to a repeated call; nullopt for a new call. For a call older than the client's
  // last call, the answer is an error.
  std::optional<Answer> recall(const CallId& call) const;
  void remember(const CallId& call, bool swapped = false, ValuePtr value = {});
  // Writes a call that changed something to the durable store. The next server may execute any other call
  // again.
  void record(const CallId& call, bool swapped = false);

 private:
  DurableStore* durable_ = nullptr;  // null: nothing is stored
  std::unordered_map<std::string, Answer> last_;
  std::deque<std::string> clients_;  // keys of last_, the oldest first
};

class StoreState {
 public:
  StoreState() = default;
  StoreState(const StoreState&) = delete;

  using OnValue = std::function<void(ValuePtr)>;
  // Identifies a waiting callback. withdraw() does nothing after the callback was called.
  struct Ticket {
    std::string name;
    uint64_t id = 0;
    enum class RecordKind { kKey, kWatch } kind = RecordKind::kKey;
  };

  // Sets the durable store to which each later change is written.
  void write_to(DurableStore* durable);
  // Restores a record of an earlier server. Call it before all other functions.
  Status restore(std::string_view record_name, ByteView record);

  Status set(std::string_view key, ValuePtr value, const CallId& call = {});
  // Returns the value of the key; null if the key is absent.
  ValuePtr get(std::string_view key) const;
  Status remove(std::string_view key, const CallId& call = {});
  struct Swapped {
    bool swapped = false;
    ValuePtr value;  // current value; null: absent
  };
  // Sets the key if its value is `expected`; without `expected`, if the key is absent.
  Result<Swapped> compare_and_set(std::string_view key, std::optional<ByteView> expected,
                                  ValuePtr value, const CallId& call = {});
  // Returns at most `limit` keys that begin with the prefix and are greater than `after`, ascending.
  std::vector<std::string> list(std::string_view prefix, std::string_view after,
                                size_t limit) const;
  uint64_t revision() const { return changes_.revision(); }
  // Returns the changes below the prefix after a revision. Without changes, sets `ticket` and later
  // calls on_change once.
  Result<Changes> watch(std::string_view prefix, uint64_t revision, ChangeLog::OnChange on_change,
                        std::optional<Ticket>* ticket);
  // Calls on_value once, when the key is set next. get() must have found the key absent.
  Ticket wait(std::string_view key, OnValue on_value);
  void withdraw(const Ticket& ticket);

  // Returns true if no value exists, and no request waits for a key.
  bool is_blank() const { return entries_.empty(); }
  size_t key_count() const { return key_count_; }
  size_t value_bytes() const { return value_bytes_; }
  size_t waiter_count() const { return waiter_count_ + changes_.watcher_count(); }

 private:
  struct Entry {
    ValuePtr value;
    std::map<uint64_t, OnValue> waiters;
  };

  void record_revision();
  void put(std::string_view key, ValuePtr value);
  using Entries = std::map<std::string, Entry, std::less<>>;
  void drop(Entries::iterator entry);

  DurableStore* durable_ = nullptr;  // null: nothing is stored
  Entries entries_;
  ChangeLog changes_;
  AnsweredCalls calls_;
  uint64_t next_ticket_ = 1;  // for waits on keys
  size_t waiter_count_ = 0;   // waits on keys
  size_t key_count_ = 0;
  size_t value_bytes_ = 0;
};

}  // namespace hvd::rendezvous
