// Carries large data between this rank and one other rank, separately from the messages of the mesh: within a host in a
// ring in the sender's shared heap, between hosts over a peer stream. The bytes arrive once, in order and complete; the
// caller defines their meaning. One caller at a time; never waits.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "collectives/mesh/mesh.h"

namespace hvd::collectives {

// A ring of bytes in memory that two ranks of a host share: one rank writes, the other one reads. Owns
// no memory. The two counters only grow; each belongs to one side. Never waits.
class ByteRing {
 public:
  // Writer and reader copy at the same time, so the ring should fit into the caches of their cores.
  static constexpr size_t kCapacity = 256 * 1024;
  // The writer publishes its progress at least this often, so that the reader follows closely.
  static constexpr size_t kPiece = 32 * 1024;

  ByteRing() = default;
  // `memory` has size() bytes, which are zero before the first use.
  explicit ByteRing(std::byte* memory) : memory_(memory) {}
  static constexpr size_t size() { return sizeof(Counters) + kCapacity; }
  explicit operator bool() const { return memory_ != nullptr; }
  std::byte* memory() const { return memory_; }

  // Copy bytes, and return their number. Each call publishes at most one piece.
  size_t write(ByteView bytes) {
    const size_t size = std::min({bytes.size(), room(), kPiece});
    if (size == 0) return 0;
    const uint64_t at = counters().written.load(std::memory_order_relaxed);
    copy(at, size, [&](std::byte* ring, size_t from, size_t part) {
      std::memcpy(ring, bytes.data() + from, part);
    });
    counters().written.store(at + size, std::memory_order_seq_cst);
    return size;
  }
  size_t read(std::span<std::byte> bytes) {
    const size_t size = std::min({bytes.size(), filled(), kPiece});
    if (size == 0) return 0;
    const uint64_t at = counters().taken.load(std::memory_order_relaxed);
    copy(at, size, [&](const std::byte* ring, size_t from, size_t part) {
      std::memcpy(bytes.data() + from, ring, part);
    });
    counters().taken.store(at + size, std::memory_order_seq_cst);
    return size;
  }
  // Return the number of bytes that the writer may write, or that the reader may read; 0 without memory. The result
  // is in range even if the other side's counter has an invalid value.
  size_t room() const { return memory_ == nullptr ? 0 : kCapacity - filled(); }
  size_t filled() const {
    if (memory_ == nullptr) return 0;
    const uint64_t taken = counters().taken.load(std::memory_order_seq_cst);
    const uint64_t written = counters().written.load(std::memory_order_seq_cst);
    return static_cast<size_t>(std::min<uint64_t>(written - taken, kCapacity));
  }

 private:
  struct Counters {
    alignas(128) std::atomic<uint64_t> written;
    alignas(128) std::atomic<uint64_t> taken;
  };
  Counters& counters() const { return *reinterpret_cast<Counters*>(memory_); }

  template <typename Copy>
  void copy(uint64_t at, size_t size, Copy&& copy_part) const {
    std::byte* const ring = memory_ + sizeof(Counters);
    const auto begin = static_cast<size_t>(at % kCapacity);
    const size_t first = std::min(size, kCapacity - begin);
    copy_part(ring + begin, 0, first);
    if (first < size) copy_part(ring, first, size - first);
  }

  std::byte* memory_ = nullptr;
};

class DataLink {
 public:
  DataLink(SharedMesh mesh, int32_t peer);
  // Releases the ring's memory, unless the peer may still read it (keep_ring()).
  ~DataLink();
  DataLink(const DataLink&) = delete;
  DataLink& operator=(const DataLink&) = delete;

  bool is_local() const { return is_local_; }
  // Between hosts: opens the stream, unless it is open. Each of the two ranks must call open_stream(), since possibly
  // only one end can connect to the other.
  void open_stream();
  // Inside a host: creates the ring for data to the peer in the shared heap, and returns its place,
  // which the peer passes to open_ring(). Returns an error if no memory can be shared with the peer.
  Result<SharedHeap::Place> make_ring();
  bool has_ring() const { return static_cast<bool>(outgoing_); }
  // Inside a host: uses the ring for data from the peer.
  Status open_ring(const SharedHeap::Place& place);
  // Within a host: returns the place of this rank's memory in the shared heap, for the peer's
  // reach(); nullopt if the memory is not in the shared heap.
  std::optional<SharedHeap::Place> place_of(ByteView memory) const;
  // Within a host: returns the address at which this process has mapped the peer's memory. `place`
  // comes from the peer's place_of().
  Result<const std::byte*> reach(const SharedHeap::Place& place, size_t size);
  // Keeps the ring's memory until the process ends, because the peer has not read everything.
  void keep_ring() { keeps_ring_ = true; }

  // Write or read without waiting. Return the number of bytes that were written or read.
  size_t write(ByteView bytes);
  size_t read(std::span<std::byte> bytes);
  // Within a host: return whether a read, or a write, would move bytes. Between hosts: return false; the events of the
  // stream wake a sleeping thread.
  bool may_read() { return is_local_ && incoming().filled() > 0; }
  bool may_write() const { return outgoing_ && outgoing_.room() > 0; }

 private:
  // Returns the ring for data from the peer; without memory before open_ring().
  ByteRing incoming();

  const SharedMesh mesh_;
  const int32_t peer_;
  const bool is_local_;
  bool keeps_ring_ = false;
  LocalMask mask_{};  // the peer's bit
  ByteRing outgoing_;
  std::optional<SharedHeap::Place> incoming_;
  PeerStream* stream_ = nullptr;
};

}  // namespace hvd::collectives
