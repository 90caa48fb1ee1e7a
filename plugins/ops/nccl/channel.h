// An NCCL communicator that runs its operations on the stream of its owner. Can add sub-communicators on the same
// stream: of the members on this host, of the members with the same place on each host, and of this rank alone.
// NcclThread owns the channel. Lives on that thread: since NCCL 2.26, even ncclCommGetAsyncError must not run
// concurrently with another call on the communicator.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ops/nccl/library.h"

namespace hvd::ops::nccl {

// The pause between two polls of a nonblocking NCCL call. A launch takes microseconds, and the wait for a late peer
// takes seconds. The pause is a quarter of the time since the call: it delays a launch by at most a quarter.
// Returns the pause after `passed` since the call; 0: the thread only yields the processor.
inline std::chrono::microseconds pause_after(std::chrono::steady_clock::duration passed) {
  using std::chrono::microseconds;
  constexpr microseconds kEager{20}, kShortest{5}, kLongest{1000};
  if (passed < kEager) return microseconds(0);
  return std::clamp(std::chrono::duration_cast<microseconds>(passed / 4), kShortest, kLongest);
}

// The grid of hosts and places in a process set with the same number of members on each host. A hierarchical allreduce
// needs a grid: it reduces inside each host, then across hosts between members with the same place.
struct Grid {
  int32_t host = 0, hosts = 1;    // index of this rank's host, by lowest member; number of hosts
  int32_t place = 0, places = 1;  // index of this rank on its host; number of members per host
};

// Returns nullopt when all members share one host, every member has its own host, or hosts have
// different numbers of members. `host_of`: the host of each rank of the job. `members`: ascending ranks.
inline std::optional<Grid> grid_of(const std::vector<int32_t>& members, int32_t own,
                                   const std::vector<int32_t>& host_of) {
  if (members.empty() || static_cast<size_t>(members.back()) >= host_of.size()) return std::nullopt;
  std::map<int32_t, std::vector<int32_t>> by_host;
  std::vector<int32_t> order;
  for (const int32_t member : members) {
    const int32_t host = host_of[static_cast<size_t>(member)];
    if (!by_host.contains(host)) order.push_back(host);
    by_host[host].push_back(member);
  }
  const int32_t own_host = host_of[static_cast<size_t>(own)];
  const std::vector<int32_t>& beside = by_host[own_host];
  const bool is_even = std::all_of(by_host.begin(), by_host.end(), [&](const auto& one) {
    return one.second.size() == beside.size();
  });
  if (!is_even || order.size() < 2 || beside.size() < 2) return std::nullopt;
  const auto index = [](const std::vector<int32_t>& of, int32_t what) {
    return static_cast<int32_t>(std::find(of.begin(), of.end(), what) - of.begin());
  };
  return Grid{index(order, own_host), static_cast<int32_t>(order.size()), index(beside, own),
              static_cast<int32_t>(beside.size())};
}

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
