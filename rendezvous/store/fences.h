// The table of fences. A fence is open when `count` parties have arrived: the last arrival ends the
// wait of all. Owns the waiting parties and their callbacks, and writes an opened fence to the
// durable store; never touches a key. No I/O. StoreState owns it and calls it, on one thread at a time.
// Callbacks run inside the call that causes them and must not call back in.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/bytes.h"
#include "base/result.h"
#include "rendezvous/store/answered_calls.h"

namespace hvd::rendezvous {

struct FenceParty {
  CallId call;
  int rank = -1;  // -1: unknown; describe() names the missing ranks by it
};

class Fences {
 public:
  using OnFence = std::function<void(Status)>;

  // `calls` remembers the parties of opened fences, and outlives this object.
  explicit Fences(AnsweredCalls& calls) : calls_(calls) {}

  // From now on, each opened fence is written to `durable`.
  void write_to(DurableStore* durable) { durable_ = durable; }
  // Restores the record of an opened fence that an earlier server's state has written.
  Status restore(ByteView record);

  // Nothing if this party completes the fence. Otherwise the number of its place; on_fence is called
  // once, later.
  Result<std::optional<uint64_t>> arrive(std::string_view name, int count, FenceParty party,
                                         OnFence on_fence);
  // Removes a waiting party. Does nothing if its fence has opened.
  void withdraw(std::string_view name, uint64_t place);
  // "fence 'x' waits for 2 of 8: ranks 3 and 7".
  std::string describe(std::string_view name) const;

  bool is_empty() const { return fences_.empty(); }
  size_t waiter_count() const { return waiter_count_; }

 private:
  struct Arrival {
    FenceParty party;
    OnFence on_fence;
  };
  struct Fence {
    int count = 0;
    std::map<uint64_t, Arrival> arrivals;
    std::unordered_map<std::string, uint64_t> of_client;  // arrivals by client, if they name one
  };

  void complete(Fence fence);
  void record(const Fence& fence);
  void drop_earlier(std::string_view name, Fence& fence, const CallId& call);

  AnsweredCalls& calls_;
  DurableStore* durable_ = nullptr;  // null: nothing is stored
  std::map<std::string, Fence, std::less<>> fences_;
  uint64_t next_number_ = 1;  // for places and for records
  size_t waiter_count_ = 0;
};

}  // namespace hvd::rendezvous
