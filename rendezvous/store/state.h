// What a store holds: values, those who wait for them, fences, and what was last answered to each
// client. Pure: no I/O, no clock, no lock; its owner calls it from one thread at a time, and calls
// expire when it says so.
// Callbacks run inside the call that causes them and must not call back in.
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
#include "base/clock.h"
#include "base/result.h"
#include "base/secrets/secret.h"
#include "rendezvous/store/change_log.h"

namespace hvd::rendezvous {

struct Value {
  Bytes bytes;
  std::optional<Digest> digest;  // SHA-256 of the bytes, when somebody has computed it already
};
using ValuePtr = std::shared_ptr<const Value>;

// Names one call of one client, so that a repetition is recognised. A client makes one such call
// at a time, and counts up. Without a client nothing is remembered.
struct CallId {
  std::string client;
  uint64_t sequence = 0;
};

class DurableStore;

struct FenceParty {
  CallId call;
  int rank = -1;  // when known: for the sentence that says who is missing
};

class State {
 public:
  using OnValue = std::function<void(ValuePtr)>;
  using OnFence = std::function<void(Status)>;
  // A place in a queue. Withdrawing one that was served already does nothing.
  struct Ticket {
    std::string name;
    uint64_t id = 0;
    enum class Kind { kKey, kFence, kWatch } kind = Kind::kKey;
  };

  // From here on, each change is written to `durable`.
  void write_to(DurableStore* durable) { durable_ = durable; }
  // Restores a record that an earlier server's state has written. Before any other call.
  Status restore(std::string_view record_name, ByteView record);

  Status set(std::string_view key, ValuePtr value, const CallId& call = {},
             Clock::time_point expires = Clock::time_point::max());
  // Null when there is none.
  ValuePtr get(std::string_view key) const;
  Result<int64_t> add(std::string_view key, int64_t amount, const CallId& call = {});
  Status remove(std::string_view key, const CallId& call = {});
  // Nothing expected: the key must not be there.
  struct Swapped {
    bool swapped = false;
    ValuePtr value;  // held now; null: none
  };
  Result<Swapped> compare_and_set(std::string_view key, std::optional<ByteView> expected,
                                  ValuePtr value, const CallId& call = {});
  // At most `limit` keys below the prefix, after one of them.
  std::vector<std::string> list(std::string_view prefix, std::string_view after,
                                size_t limit) const;
  uint64_t revision() const { return changes_.revision(); }
  // What changed below the prefix after a revision; when nothing did, on_change is called once,
  // later, and `ticket` is filled.
  Result<Changes> watch(std::string_view prefix, uint64_t revision, ChangeLog::OnChange on_change,
                        std::optional<Ticket>* ticket);
  // Removes what has lived its time.
  void expire(Clock::time_point now);
  // When something has; max: nothing will.
  Clock::time_point next_expiry() const;
  // Calls on_value once, when the key is set next; the caller has looked with get.
  Ticket wait(std::string_view key, OnValue on_value);
  // Nothing when the fence is complete with this party; else on_fence is called once, later.
  Result<std::optional<Ticket>> arrive(std::string_view name, int count, FenceParty party,
                                       OnFence on_fence);
  void withdraw(const Ticket& ticket);
  // "fence 'x' waits for 2 of 8: ranks 3 and 7".
  std::string describe_fence(std::string_view name) const;

  // No value, and nobody who waits for one or at a fence.
  bool is_blank() const { return entries_.empty() && fences_.empty(); }
  size_t key_count() const { return key_count_; }
  size_t value_bytes() const { return value_bytes_; }
  size_t waiter_count() const { return waiter_count_ + changes_.watcher_count(); }

 private:
  struct Entry {
    ValuePtr value;
    Clock::time_point expires = Clock::time_point::max();
    std::map<uint64_t, OnValue> waiters;
  };
  struct Arrival {
    FenceParty party;
    OnFence on_fence;
  };
  struct Fence {
    int count = 0;
    std::map<uint64_t, Arrival> arrivals;
    std::unordered_map<std::string, uint64_t> of_client;  // arrivals that name one
  };
  // The last call of a client, and what it was answered.
  struct Outcome {
    uint64_t sequence = 0;
    Status status;
    int64_t number = 0;
    ValuePtr value;
  };

  std::optional<Outcome> recall(const CallId& call) const;
  void remember(const CallId& call, Status status, int64_t number = 0, ValuePtr value = {});
  void record_outcome(const CallId& call, int64_t number);
  void record_fence(const Fence& fence);
  void record_revision();
  void put(std::string_view key, ValuePtr value,
           Clock::time_point expires = Clock::time_point::max());
  using Entries = std::map<std::string, Entry, std::less<>>;
  void drop(Entries::iterator entry);
  void set_expiry(Entries::iterator entry, Clock::time_point expires);
  void complete(Fence fence);
  void drop_earlier(std::string_view name, Fence& fence, const CallId& call);
  void leave_fence(const Ticket& ticket);

  DurableStore* durable_ = nullptr;  // null: nothing is stored
  Entries entries_;
  std::multimap<Clock::time_point, std::string> expiries_;
  ChangeLog changes_;
  std::map<std::string, Fence, std::less<>> fences_;
  std::unordered_map<std::string, Outcome> outcomes_;
  std::deque<std::string> clients_;  // of outcomes_, the oldest first
  uint64_t next_ticket_ = 1;
  size_t waiter_count_ = 0;
  size_t key_count_ = 0;
  size_t value_bytes_ = 0;
};

}  // namespace hvd::rendezvous
