#include "runtime/point_to_point/peer_link.h"

#include <algorithm>
#include <cstring>

#include "base/log/log.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

// Maximum number of bytes that one call copies, so that it does not delay this rank's other work.
constexpr size_t kMostAtOnce = 1 << 20;

}  // namespace

PeerLink::PeerLink(int32_t rank, const collectives::SharedMesh& mesh) : rank_(rank) {
  if (mesh != nullptr)
    link_.emplace(mesh, rank);
  else
    sends_pieces_ = true;
}

std::optional<collectives::SharedHeap::Place> PeerLink::prepare() {
  if (sends_pieces_) return {};
  if (!link_->is_local()) {
    link_->open_stream();
    return {};
  }
  if (link_->has_ring()) return {};
  const auto place = link_->make_ring();
  if (place.ok()) return *place;
  log::debug(cat("messages to rank ", rank_, " travel in pieces: ", place.status().message()));
  sends_pieces_ = true;
  return {};
}

Status PeerLink::open_ring(const collectives::SharedHeap::Place& place) {
  if (!link_) return invalid_argument("a rank that shares no memory has a ring");
  return link_->open_ring(place);
}

Submission* PeerLink::find_incoming(uint64_t id) const {
  const auto found = std::ranges::find_if(
      incoming, [id](const Submission* receive) { return receive->message.id == id; });
  return found == incoming.end() ? nullptr : *found;
}

std::vector<Submission*> PeerLink::drop_transfers() {
  std::vector<Submission*> dropped(outgoing.begin(), outgoing.end());
  dropped.insert(dropped.end(), incoming.begin(), incoming.end());
  dropped.insert(dropped.end(), lent.begin(), lent.end());
  for (const Copy& one : copies) dropped.push_back(one.receive);
  outgoing.clear();
  incoming.clear();
  lent.clear();
  copies.clear();
  receiving_ = nullptr;
  return dropped;
}

Result<Submission*> PeerLink::copy() {
  const Copy& first = copies.front();
  Submission& receive = *first.receive;
  const size_t size = receive.tensors[0].bytes;
  if (!link_) return invalid_argument("it names a place of memory without sharing any");
  HVD_ASSIGN_OR_RETURN(const std::byte* data, link_->reach(first.place, size));
  const size_t at = receive.message.moved;
  const size_t part = std::min(size - at, kMostAtOnce);
  std::memcpy(static_cast<std::byte*>(receive.tensors[0].output) + at, data + at, part);
  receive.message.moved += part;
  if (receive.message.moved < size) return nullptr;
  copies.pop_front();
  return &receive;
}

Submission* PeerLink::write(bool* moved) {
  Submission& send = *outgoing.front();
  const size_t size = send.tensors[0].bytes;
  if (header_sent_ < kHeader) {
    const TransferHeader header{send.message.id, size};
    const size_t written = link_->write(std::as_bytes(std::span(&header, 1)).subspan(header_sent_));
    header_sent_ += written;
    *moved |= written > 0;
    if (header_sent_ < kHeader) return nullptr;
  }
  const auto* const data = static_cast<const std::byte*>(send.tensors[0].input);
  const size_t part = std::min(size - send.message.moved, kMostAtOnce);
  if (part > 0) {
    const size_t written = link_->write({data + send.message.moved, part});
    send.message.moved += written;
    *moved |= written > 0;
  }
  if (send.message.moved < size) return nullptr;
  header_sent_ = 0;
  outgoing.pop_front();
  *moved = true;
  return &send;
}

Result<Submission*> PeerLink::read(bool* moved) {
  if (!link_) return nullptr;
  if (receiving_ == nullptr) {
    const size_t got = link_->read(std::span(received_header_).subspan(header_received_));
    header_received_ += got;
    *moved |= got > 0;
    if (header_received_ < kHeader) return nullptr;
    TransferHeader header{};
    std::memcpy(&header, received_header_.data(), kHeader);
    header_received_ = 0;
    receiving_ = find_incoming(header.id);
    if (receiving_ == nullptr || receiving_->tensors[0].bytes != header.size) {
      return invalid_argument(
          cat("it transfers a message of ", header.size, " bytes that this rank has not accepted"));
    }
  }
  Submission& receive = *receiving_;
  const size_t size = receive.tensors[0].bytes;
  auto* const data = static_cast<std::byte*>(receive.tensors[0].output);
  const size_t part = std::min(size - receive.message.moved, kMostAtOnce);
  if (part > 0) {
    const size_t got = link_->read({data + receive.message.moved, part});
    receive.message.moved += got;
    *moved |= got > 0;
  }
  if (receive.message.moved < size) return nullptr;
  receiving_ = nullptr;
  std::erase(incoming, &receive);
  *moved = true;
  return &receive;
}

}  // namespace hvd::runtime
