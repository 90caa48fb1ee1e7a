// Carries large data between this rank and one other rank, separately from the messages of the
// mesh: within a host in a ring in the sender's shared heap, between hosts over a peer stream. The
// bytes arrive once, in order and complete; the caller defines their meaning. Point-to-point
// messages own one per peer. One caller at a time; never waits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "collectives/mesh/mesh.h"
#include "collectives/shm/byte_ring.h"

namespace hvd::collectives {

class DataLink {
 public:
  DataLink(SharedMesh mesh, int32_t peer);
  // Returns the ring's memory unless the peer may still read it: see keep_ring().
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
  // Within a host: returns whether a read, or a write, would move bytes. Between hosts, stream events wake a sleeper.
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
