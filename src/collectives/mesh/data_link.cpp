#include "collectives/mesh/data_link.h"

#include "base/log/log.h"

namespace hvd::collectives {
namespace {

// The key of the stream between two ranks. The streams of groups have hashes as keys, and the
// control stream has 0.
constexpr uint64_t kStream = 2;

}  // namespace

DataLink::DataLink(SharedMesh mesh, int32_t peer)
    : mesh_(std::move(mesh)),
      peer_(peer),
      is_local_(mesh_->leader_of(peer) == mesh_->leader_of(mesh_->rank())) {
  if (!is_local_) return;
  const size_t local = mesh_->local_index_of(peer);
  mask_[local / 64] = uint64_t{1} << (local % 64);
}

DataLink::~DataLink() {
  if (!mesh_->in_owner_process()) return;
  if (stream_ != nullptr) mesh_->close_peer_stream(*stream_);
  if (!outgoing_ || keeps_ring_) return;
  if (Status status = mesh_->heap()->release(outgoing_.memory()); !status.ok()) {
    log::debug(status.message());
  }
}

void DataLink::open_stream() {
  if (stream_ == nullptr) stream_ = &mesh_->peer_stream(peer_, kStream);
}

Result<SharedHeap::Place> DataLink::make_ring() {
  SharedHeap* const heap = mesh_->heap();
  if (heap == nullptr) return unavailable("this process shares no memory");
  if (!outgoing_) {
    HVD_ASSIGN_OR_RETURN(void* memory, heap->allocate(ByteRing::size()));
    outgoing_ = ByteRing(static_cast<std::byte*>(memory));
  }
  const auto place = heap->find(outgoing_.memory(), ByteRing::size());
  if (!place) return internal_error("the shared heap does not know its own block");
  return *place;
}

std::optional<SharedHeap::Place> DataLink::place_of(ByteView memory) const {
  const SharedHeap* const heap = is_local_ ? mesh_->heap() : nullptr;
  if (heap == nullptr) return std::nullopt;
  return heap->find(memory.data(), memory.size());
}

Result<const std::byte*> DataLink::reach(const SharedHeap::Place& place, size_t size) {
  if (!is_local_ || mesh_->peer_heaps() == nullptr) {
    return invalid_argument("a rank that shares no memory names a place in it");
  }
  HVD_ASSIGN_OR_RETURN(std::byte * memory,
                       mesh_->peer_heaps()->reach(mesh_->local_index_of(peer_), place, size));
  return memory;
}

Status DataLink::open_ring(const SharedHeap::Place& place) {
  HVD_RETURN_IF_ERROR(reach(place, ByteRing::size()).status());
  incoming_ = place;
  return {};
}

// Calls reach() each time: PeerHeaps may have unmapped the block, and then maps it again.
ByteRing DataLink::incoming() {
  if (!incoming_) return {};
  auto memory =
      mesh_->peer_heaps()->reach(mesh_->local_index_of(peer_), *incoming_, ByteRing::size());
  return memory.ok() ? ByteRing(*memory) : ByteRing();
}

size_t DataLink::write(ByteView bytes) {
  if (!is_local_) return stream_ == nullptr ? 0 : stream_->write_some(bytes);
  size_t written = 0;
  while (outgoing_ && written < bytes.size()) {
    const size_t size = outgoing_.write(bytes.subspan(written));
    if (size == 0) break;
    written += size;
    mesh_->host_links().wake(mask_);
  }
  return written;
}

size_t DataLink::read(std::span<std::byte> bytes) {
  if (!is_local_) return stream_ == nullptr ? 0 : stream_->read_some(bytes);
  size_t got = 0;
  ByteRing ring = incoming();
  while (got < bytes.size()) {
    const size_t size = ring.read(bytes.subspan(got));
    if (size == 0) break;
    got += size;
    mesh_->host_links().wake(mask_);
  }
  return got;
}

}  // namespace hvd::collectives
