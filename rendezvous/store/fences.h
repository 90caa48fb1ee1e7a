// The table of fences: parties that wait until `count` of them have arrived; the last arrival lets all
// go. Owns the parties and their callbacks, and writes an opened fence to the durable store; never
// touches a key. Pure; lives with the State that owns it, on one thread at a time.
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
  int rank = -1;  // when known: for the sentence that says who is missing
};

class Fences {
 public:
  using OnFence = std::function<void(Status)>;

  // `calls` knows the parties of opened fences, and outlives this.
  explicit Fences(AnsweredCalls& calls) : calls_(calls) {}

  // From here on, each opened fence is written to `durable`.
  void write_to(DurableStore* durable) { durable_ = durable; }
  // Restores the record of an opened fence that an earlier server's state has written.
  Status restore(ByteView record);

  // Nothing when the fence is complete with this party; else the number of its place, and on_fence is
  // called once, later.
  Result<std::optional<uint64_t>> arrive(std::string_view name, int count, FenceParty party,
                                         OnFence on_fence);
  // Leaves a place. Of one that was served already, it does nothing.
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
    std::unordered_map<std::string, uint64_t> of_client;  // arrivals that name one
  };

  void complete(Fence fence);
  void record(const Fence& fence);
  void drop_earlier(std::string_view name, Fence& fence, const CallId& call);

  AnsweredCalls& calls_;
  DurableStore* durable_ = nullptr;  // null: nothing is stored
  std::map<std::string, Fence, std::less<>> fences_;
  uint64_t next_number_ = 1;  // of a place, or of a record
  size_t waiter_count_ = 0;
};

}  // namespace hvd::rendezvous
