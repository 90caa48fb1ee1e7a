// A ring of bytes in memory that two ranks of a host share: one rank writes, the other one reads. Owns
// no memory. The two counters only grow; each belongs to one side. Never waits.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/bytes.h"

namespace hvd::collectives {

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

}  // namespace hvd::collectives
