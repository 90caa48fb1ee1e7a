// An NCCL communicator, whose calls go to the stream of its owner. Can add sub-communicators on the same stream, of
// the members on this host, of the members with the same place on each host, and of this rank alone.
// NcclThread owns the channel. Lives on that thread: since NCCL 2.26, even ncclCommGetAsyncError
// must not run concurrently with another call on the communicator.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ops/nccl/library.h"

namespace hvd::ops::nccl {

class Channel {
 public:
  // A function that waits between two polls of a nonblocking call. Returns false to abandon the call. Never null.
  using Pause = std::function<bool(std::chrono::microseconds)>;

  Channel(const NcclApi& api, void* stream) : api_(api), stream_(stream) {}
  Channel(const Channel&) = delete;

  // Creates the communicator. For this and all functions below the device must be current. Waits for the other
  // members while `pause` returns true. The communicator is nonblocking if the library supports it, so that
  // a call that waits for a peer can be abandoned.
  Status open(const abi::UniqueId& id, int index, int size, const Pause& pause);
  // A communicator on the same stream: of the members on this host, of the members with the same
  // place on each host, or of this rank alone (to multiply by a factor).
  enum SubCommunicator { kInside = 0, kAcross = 1, kAlone = 2 };
  Status add_sub_communicator(SubCommunicator sub, const abi::UniqueId& id, int index, int size,
                              const Pause& pause);
  Channel* sub_communicator(SubCommunicator which) const { return sub_communicators_[which].get(); }
  // Waits until NCCL has taken the calls of a group. Call it after each group_end.
  Status settle(const Pause& pause);
  // Returns NCCL's asynchronous error. The output of a finished batch is valid only if check() returns ok.
  Status check() const;
  // Moves the communicator and the sub-communicators to the caller, which aborts them. Only close may follow.
  std::vector<abi::Comm*> give_up();
  // Call before destruction, when no batch of the channel runs.
  void close();

  // Returns an operation that multiplies each input by `factor` and sums the products.
  Result<int> sum_times(double factor, int type);

  abi::Comm* comm() const { return comm_; }
  void* stream() const { return stream_; }
  const NcclApi& api() const { return api_; }

 private:
  const NcclApi& api_;
  void* const stream_;
  abi::Comm* comm_ = nullptr;  // nullptr: not open yet, or aborted
  std::unique_ptr<Channel> sub_communicators_[3];
  std::map<std::pair<int, double>, int> sums_;  // by type and factor
};

}  // namespace hvd::ops::nccl
