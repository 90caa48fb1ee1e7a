#include "runtime/wire/peer_message.h"

#include <cstring>
#include <type_traits>

#include "base/text.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {
namespace {

struct Header {
  MessageKind kind;
  PeerStep step;
  uint8_t dtype;
  uint8_t unused;
  int32_t tag;
  uint32_t set;
  uint32_t also_unused;
  uint64_t id;
  uint64_t count;
};
static_assert(sizeof(Header) == kPeerHeader && std::is_trivially_copyable_v<Header>);

bool has_bytes(PeerStep step) { return step == PeerStep::kData || step == PeerStep::kOffer; }

}  // namespace

std::array<std::byte, kPeerHeader> header_of(const PeerMessage& message) {
  const Header header{
      MessageKind::kPeer, message.step, message.dtype, 0, message.tag, message.set, 0,
      message.id,         message.count};
  std::array<std::byte, kPeerHeader> bytes;
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

Status decode(ByteView bytes, PeerMessage* message) {
  Header header;
  if (bytes.size() < sizeof header) return invalid_argument("a message of a peer is cut short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.kind != MessageKind::kPeer) return invalid_argument("a message is of another kind");
  if (header.step < PeerStep::kData || header.step > PeerStep::kGroupEnd) {
    return invalid_argument("a message of a peer is of no known step");
  }
  *message = {header.step,
              header.dtype,
              header.tag,
              header.set,
              header.id,
              header.count,
              bytes.subspan(sizeof header)};
  if (!has_bytes(header.step)) return {};
  uint64_t size = dtype_size(header.dtype);
  if (size == 0 || __builtin_mul_overflow(size, header.count, &size)) {
    return invalid_argument(
        cat("a peer sends ", header.count, " elements of dtype ", int{header.dtype}));
  }
  if (header.step == PeerStep::kData && size != message->rest.size()) {
    return invalid_argument(cat("a message of ", size, " bytes carries ", message->rest.size()));
  }
  return {};
}

Status decode(ByteView bytes, PeerPlace* place) {
  if (bytes.size() != sizeof *place)
    return invalid_argument("the place of memory has another size");
  std::memcpy(place, bytes.data(), sizeof *place);
  return {};
}

}  // namespace hvd::runtime
