// A sub-region: the layout of one group's part of the host's shared-memory region, and the
// synchronisation of its ranks.
//
// Every operation takes a number of steps, equal on all members. Even and odd steps use different
// buffers. A rank publishes its progress in counters that only grow: `arrived` (its data of a step is
// in its slot), `reduced` (its slice of the result is complete), `consumed` (it has finished reading
// the data of the step). The host's leader publishes in `shared` that the result of all hosts is
// complete. A counter's value is a step plus one.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hvd::collectives {

struct alignas(128) MemberFlags {
  std::atomic<uint64_t> arrived;
  std::atomic<uint64_t> reduced;
  std::atomic<uint64_t> consumed;
  std::atomic<uint64_t> shared;
};
constexpr auto kArrived = &MemberFlags::arrived;
constexpr auto kReduced = &MemberFlags::reduced;
constexpr auto kConsumed = &MemberFlags::consumed;
constexpr auto kShared = &MemberFlags::shared;

// A small payload lies next to the flag that announces it.
constexpr size_t kSmallBytes = 4096 - sizeof(std::atomic<uint64_t>);
struct alignas(128) SmallSlot {
  std::atomic<uint64_t> turn;
  std::byte payload[kSmallBytes];
};
static_assert(sizeof(SmallSlot) == 4096);

class SubRegion {
 public:
  SubRegion() = default;
  SubRegion(std::byte* base, size_t ranks, size_t chunk)
      : base_(base), ranks_(ranks), chunk_(chunk) {}

  // Returns the bytes per slot and result, so that the buffers of all ranks fit into the caches and
  // into the memory budget. With few ranks this is 512 KiB, the fastest for an allreduce of private
  // memory.
  static size_t chunk_for(size_t ranks) {
    constexpr size_t kLargest = 512 * 1024;
    constexpr size_t kSmallest = 16 * 1024;
    constexpr size_t kBudget = 8 * 1024 * 1024;
    const size_t share = kBudget / (ranks + 1) / 4096 * 4096;
    // Each rank gets at least one cache line.
    return std::max(std::clamp(share, kSmallest, kLargest), ranks * 64);
  }
  static size_t size_for(size_t ranks, size_t chunk) {
    return flags_size(ranks) + 2 * ranks * sizeof(SmallSlot) + 2 * (ranks + 1) * chunk;
  }

  explicit operator bool() const { return base_ != nullptr; }
  std::byte* base() const { return base_; }
  size_t size() const { return size_for(ranks_, chunk_); }
  // Returns the bytes of a slot that most operations use per step.
  size_t chunk() const { return std::min<size_t>(chunk_, 256 * 1024); }
  // Returns the bytes of a slot that an allreduce of `total` bytes uses per step. Even a small payload has
  // more than one chunk, so that ranks work in parallel.
  size_t chunk_of(size_t total) const {
    constexpr size_t kLeast = 64 * 1024;
    const size_t half = (total / 2 + 4095) / 4096 * 4096;
    return std::min(std::max({half, kLeast, ranks_ * 64}), chunk_);
  }

  MemberFlags& flags(size_t rank) const { return reinterpret_cast<MemberFlags*>(base_)[rank]; }
  SmallSlot& small(size_t rank, uint64_t step) const {
    return reinterpret_cast<SmallSlot*>(base_ + flags_size(ranks_))[2 * rank + (step & 1)];
  }
  std::byte* slot(size_t rank, uint64_t step) const {
    return buffers() + (2 * rank + (step & 1)) * chunk_;
  }
  std::byte* result(uint64_t step) const { return slot(ranks_, step); }

 private:
  static size_t flags_size(size_t ranks) {
    return (ranks * sizeof(MemberFlags) + 4095) / 4096 * 4096;
  }
  std::byte* buffers() const { return base_ + flags_size(ranks_) + 2 * ranks_ * sizeof(SmallSlot); }

  std::byte* base_ = nullptr;
  size_t ranks_ = 0;
  size_t chunk_ = 0;
};

}  // namespace hvd::collectives
