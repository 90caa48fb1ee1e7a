// The members of a process set or group, for the collectives: the members on this host, the leader of each host,
// the shared memory of the members, and the step counters. The built-in backend owns a Group per process set,
// GroupRunner one per group. Lives on the progress thread.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/algorithms/flow.h"
#include "collectives/mesh/mesh.h"
#include "collectives/mesh/peer_stream.h"
#include "collectives/shm/shared_region.h"

namespace hvd::collectives {

// A Condition for several concurrent transfers over peer streams, ready when all are complete. Transfers
// on one stream in one direction run in the order in which they were added.
class ConcurrentTransfers final : public Condition {
 public:
  void send(PeerStream& peer_stream, const std::byte* data, size_t size);
  void receive(PeerStream& peer_stream, std::byte* data, size_t size);
  bool ready() override;
  // Returns a peer whose stream has ended, or -1.
  int waits_for() const override { return waits_for_; }

 private:
  struct Transfer {
    PeerStream* peer_stream;
    std::byte* data;
    size_t left;
    bool sends;
  };
  static bool move(Transfer& transfer);
  std::vector<Transfer> transfers_;
  std::vector<std::pair<PeerStream*, bool>>
      stuck_;        // streams and directions that are blocked in this pass
  size_t done_ = 0;  // transfers at the front that are complete
  int waits_for_ = -1;
};

class InterHostAllreduce;

class Group {
 public:
  using Counter = std::atomic<uint64_t> MemberFlags::*;

  // `members` holds ascending global ranks, including this rank. `incarnation` distinguishes
  // successive sets with equal id and members.
  Group(Mesh& mesh, int32_t id, std::vector<int32_t> members, uint32_t incarnation);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Mesh& mesh() { return mesh_; }
  size_t size() const { return members_.size(); }
  // Returns this rank's index among the members.
  size_t index() const { return index_; }

  // Hosts are in the order of their lowest member; members of a host are ascending indices among all members.
  size_t host_count() const { return hosts_.size(); }
  size_t host_index() const { return host_index_; }
  std::span<const size_t> members_of(size_t host) const { return hosts_[host]; }
  size_t host_of(size_t member) const { return host_of_[member]; }
  std::span<const size_t> local_members() const { return hosts_[host_index_]; }
  size_t local_count() const { return hosts_[host_index_].size(); }
  size_t local_index() const { return local_index_; }
  // Returns a member's index among the local members; `member` must be on this host.
  size_t local_index_of(size_t member) const;
  int32_t global_rank_of_local(size_t local) const { return members_[hosts_[host_index_][local]]; }
  bool is_leader() const { return local_index_ == 0; }
  // Returns a stream to the rank on another host that has the same local index as this rank.
  PeerStream& peer_stream(size_t host, size_t stream = 0);
  // Return the number of members on the host with the fewest members, and on the host with the most members.
  size_t fewest_local() const { return fewest_local_; }
  size_t most_local() const { return most_local_; }
  InterHostAllreduce& inter_host();

  // Creates or finds the sub-region. Returns false while the caller must call it again. A failure fails the mesh,
  // except in a single-host group with may_be_refused: there, all members return true and get the error in refusal().
  bool open_sub_region();
  bool may_be_refused = false;
  const Status& refusal() const { return refusal_; }
  const SubRegion& sub_region() const { return sub_region_; }
  // Releases this member's part of the sub-region. The streams stay open. No operation may run afterwards.
  void release_sub_region();
  // Releases this member's part of the shared memory, and the streams that peers have opened, also if this
  // member has not used them. No member may run an operation of the group afterwards.
  void retire();

  // Reserves steps for an operation and returns the first.
  uint64_t take_steps(uint64_t count) {
    const uint64_t first = step_;
    step_ += count;
    return first;
  }
  // Stores this member's counter. post() wakes sleeping local members at once; post_all() and
  // post_small() wake them when the counters of all local members have reached the value.
  void post(Counter counter, uint64_t value);
  void post_all(Counter counter, uint64_t value);
  void post_small(uint64_t step);
  void wake_if_all(Condition& condition);

  // All members have finished reading the data of the steps before this one. The value may lag behind.
  uint64_t known_consumed = 0;
  // Returns whether this rank knows that all members have read the small payloads that this step
  // overwrites.
  bool small_slot_is_free(uint64_t step) const { return step == 0 || known_consumed >= step - 1; }

  // Return private memory for small results and for data from other hosts.
  std::byte* small_result() { return small_result_.data(); }
  std::byte* scratch(size_t size);

 private:
  Mesh& mesh_;
  std::vector<int32_t> members_;
  uint64_t key_;
  size_t index_ = 0;
  std::vector<std::vector<size_t>> hosts_;
  std::vector<size_t> host_of_;
  size_t host_index_ = 0;
  size_t local_index_ = 0;
  size_t chunk_ = 0;
  LocalMask local_mask_{};
  SubRegion sub_region_;
  int sub_region_index_ = -1;
  bool made_sub_region_ = false;
  Status refusal_;
  uint64_t step_ = 0;
  size_t fewest_local_ = 0;
  size_t most_local_ = 0;
  std::vector<std::vector<PeerStream*>> peer_streams_;  // by host and stream
  std::unique_ptr<InterHostAllreduce> inter_host_;
  alignas(64) std::array<std::byte, sizeof(SmallSlot)> small_result_;
  std::vector<std::byte> scratch_;
};

// Ready when the counters of all local members have reached a value.
class AllReached final : public Condition {
 public:
  AllReached(Group& group, Group::Counter counter, uint64_t value)
      : group_(group), counter_(counter), value_(value) {}
  bool ready() override;
  int waits_for() const override { return group_.global_rank_of_local(next_); }

 private:
  Group& group_;
  Group::Counter counter_;
  uint64_t value_;
  size_t next_ = 0;
};

// Returns a condition that is ready when every local member has consumed the buffers that this step
// reuses: the buffers of two steps before, possibly of another operation.
inline AllReached buffers_free(Group& group, uint64_t step) {
  return {group, kConsumed, step == 0 ? 0 : step - 1};
}

// Ready when the counter of one local member has reached a value.
class OneReached final : public Condition {
 public:
  OneReached(Group& group, size_t local, Group::Counter counter, uint64_t value)
      : group_(group), local_(local), counter_(counter), value_(value) {}
  bool ready() override {
    return (group_.sub_region().flags(local_).*counter_).load(std::memory_order_seq_cst) >= value_;
  }
  int waits_for() const override { return group_.global_rank_of_local(local_); }

 private:
  Group& group_;
  size_t local_;
  Group::Counter counter_;
  uint64_t value_;
};

// Ready when the small payloads of all local members for a step have arrived.
class SmallArrived final : public Condition {
 public:
  SmallArrived(Group& group, uint64_t step) : group_(group), step_(step) {}
  bool ready() override;
  int waits_for() const override { return group_.global_rank_of_local(next_); }

 private:
  Group& group_;
  uint64_t step_;
  size_t next_ = 0;
};

// Ready when the group's sub-region is mapped or was refused.
class SubRegionOpen final : public Condition {
 public:
  explicit SubRegionOpen(Group& group) : group_(group) {}
  bool ready() override { return group_.open_sub_region(); }

 private:
  Group& group_;
};

// Streams a payload through the members' slots step by step: each member packs its own data, the
// leaders exchange what other hosts need, and each member unpacks what it needs.
//
// `Work` has first() and steps(), the range of steps that Group::take_steps reserved. For each step
// the function calls pack(index), which posts kArrived, add_transfers(transfers, index), and
// unpack(index), which posts kConsumed.
template <typename Work>
Coroutine stream_steps(Flow& flow, Group& group, Work& work) {
  for (size_t i = 0; i < work.steps(); ++i) {
    const uint64_t step = work.first() + i;
    AllReached is_free = buffers_free(group, step);
    co_await flow.until(is_free);
    work.pack(i);
    if (group.host_count() == 1 || group.is_leader()) {
      AllReached arrived(group, kArrived, step + 1);
      co_await flow.until(arrived);
    }
    if (group.host_count() > 1 && group.is_leader()) {
      ConcurrentTransfers transfers;
      work.add_transfers(transfers, i);
      co_await flow.until(transfers);
      group.post(kShared, step + 1);
    } else if (group.host_count() > 1) {
      OneReached shared(group, 0, kShared, step + 1);
      co_await flow.until(shared);
    }
    work.unpack(i);
  }
}

}  // namespace hvd::collectives
