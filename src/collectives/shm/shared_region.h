// The shared-memory region of the ranks of one host: a sealed, preallocated memfd without a name. This
// header defines its layout and the writers of each part. Ranks share offsets, never pointers. No call
// waits.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fork_guard.h"
#include "base/result.h"

namespace hvd::collectives {

// Maps shared memory for SharedRegion and PeerHeaps by mmap. Tests that run all ranks as threads override
// map(), and map each region at one address for all ranks, so that ThreadSanitizer sees conflicting accesses.
class MemoryMap {
 public:
  virtual ~MemoryMap() = default;
  // Maps `size` bytes of `fd` from `offset` on, for reading and writing. The caller unmaps the bytes.
  virtual Result<void*> map(int fd, size_t offset, size_t size);
  virtual void unmap(void* memory, size_t size);
};

constexpr size_t kMaxLocalRanks = 512;
constexpr size_t kMaskWords = kMaxLocalRanks / 64;
constexpr size_t kMessageCells = 128;
constexpr size_t kMessageBytes = 240;
constexpr size_t kSubRegions = 256;

// A set of local ranks.
using LocalMask = std::array<uint64_t, kMaskWords>;

enum class BlockState : uint32_t { kOpen = 0, kClosed = 1 };

// A piece of a message. `turn` equals the cell's position when a sender may fill the cell, and the
// position plus one when the receiver may read it.
struct MessageCell {
  std::atomic<uint64_t> turn;
  uint32_t sender;
  uint32_t size;  // bytes of this piece; the last piece of a message has kMessageLast set
  std::byte data[kMessageBytes];
};
static_assert(sizeof(MessageCell) == 256);
constexpr uint32_t kMessageLast = 1u << 31;

// The block of one rank. Other ranks add to its mailbox; only the rank itself removes.
struct RankBlock {
  alignas(128) std::atomic<uint32_t> state;
  alignas(64) std::atomic<uint64_t> message_tail;
  alignas(64) std::atomic<uint32_t> message_starved;  // a sender found all cells full
  alignas(64) MessageCell messages[kMessageCells];
};

enum class SubRegionState : uint32_t { kFree = 0, kClaimed = 1, kReady = 2, kRefused = 3 };

// A sub-region: the part of the region that one group of ranks uses for its data.
struct SubRegionEntry {
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> users;
  std::atomic<uint64_t> key;
};

struct RegionHeader {
  uint64_t magic;
  uint32_t rank_count;
  uint64_t sub_region_size;  // the largest size; unused pages of the sparse file take no memory
  uint64_t sub_regions_at;
  uint64_t rooms;                             // sub-regions that have memory
  alignas(64) std::atomic<uint32_t> failure;  // 0 none, 1 being written, 2 readable
  std::atomic<uint32_t> left_count;           // ranks that left
  int32_t lost_rank;                          // the rank whose loss is the failure, or -1
  char cause[1024];
  alignas(128) std::atomic<uint64_t> sleepers[kMaskWords];
  alignas(128) SubRegionEntry sub_regions[kSubRegions];
};

class SharedRegion {
 public:
  // Creates the file for `rank_count` ranks, with space for sub-regions of `sub_region_size` bytes:
  // as many as the limit of file sizes allows.
  static Result<std::unique_ptr<SharedRegion>> create(size_t rank_count, size_t sub_region_size,
                                                      MemoryMap& map);
  // Maps a file that another rank of this host created.
  static Result<std::unique_ptr<SharedRegion>> open(UniqueFd file, MemoryMap& map);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  int fd() const { return file_.get(); }
  MemoryMap& memory_map() { return map_; }
  RegionHeader& header() { return *header_; }
  RankBlock& rank(size_t local) { return ranks_[local]; }
  size_t rank_count() const { return header_->rank_count; }

  // Claims a sub-region with a key for `users` ranks and reserves its memory. Only one rank of a group
  // calls make_sub_region(). Without memory or a free entry, refuses the sub-region: find_sub_region() with
  // this key then fails, once for each user.
  Status make_sub_region(uint64_t key, size_t size, uint32_t users);
  // Returns the index of the sub-region, -1 while it does not exist, or an error if it was
  // refused.
  Result<int> find_sub_region(uint64_t key) const;
  Result<std::byte*> map_sub_region(int index, size_t size);
  // Unmaps a sub-region. The last user returns its memory to the system.
  void release_sub_region(int index, std::byte* memory, size_t size);

 private:
  SharedRegion(GuardedFd file, MemoryMap& map);
  Status attach(size_t size);

  GuardedFd file_;
  MemoryMap& map_;
  void* memory_ = nullptr;
  size_t size_ = 0;
  RegionHeader* header_ = nullptr;
  RankBlock* ranks_ = nullptr;
};

// A sub-region: the layout of one group's part of the host's shared-memory region, and the
// synchronisation of its ranks.
//
// Every operation takes a number of steps, equal on all members. Even and odd steps use different
// buffers. A rank publishes its progress in counters that only grow: `arrived` (its data of a step is
// in its slot), `reduced` (its slice of the result is complete), `consumed` (it has finished reading
// the data of the step). The host's leader publishes in `shared` that the result of all hosts is
// complete. A counter's value is a step plus one.
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

  // Returns the size of a slot and of the result, in bytes: small enough that the buffers of all ranks fit into the
  // caches and into the memory budget. With few ranks this is 512 KiB, the fastest for an allreduce of private memory.
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
  // Returns the number of bytes of a slot that most operations use in a step.
  size_t chunk() const { return std::min<size_t>(chunk_, 256 * 1024); }
  // Returns the number of bytes of a slot that an allreduce of `total` bytes uses in a step. A payload above 64 KiB has
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
