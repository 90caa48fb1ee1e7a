// Messages of a send or receive between two ranks, as bytes: a header of a fixed size, and the
// bytes after it. Decoding checks everything.
//
//   data       sender -> receiver   a small message, whose bytes follow
//   offer      sender -> receiver   a large message: the sender keeps the bytes until the receiver accepts; its
//                                   place follows if it lies in shared memory
//   accept     receiver -> sender   the receiver accepts an offered message
//   refused    receiver -> sender   the receiver refuses it; has the reason. Also the reply to withdrawn
//   withdrawn  sender -> receiver   the offer has ended; `count` is 1 if the sender waits for refused or copied,
//                                   since its memory may be read until then
//   ring       sender -> receiver   the place of the ring (DataLink) for large messages of the sender
//   piece      sender -> receiver   bytes of an accepted message, without a DataLink
//   taken      receiver -> sender   the receiver has taken `count` bytes of pieces
//   copied     receiver -> sender   the receiver has copied an accepted message from its place
//   consumed   receiver -> sender   the program has received `count` bytes of small messages
//   flush      sender -> receiver   requests `flushed`
//   group_end  any -> any           the sender has left after `count` calls of the group with the key `id`; with tag 1
//                                   it has destroyed only the group
//   flushed    receiver -> sender   all messages of the sender have arrived
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

enum class PeerStep : uint8_t {
  kData = 1,
  kOffer = 2,
  kAccept = 3,
  kRefused = 4,
  kWithdrawn = 5,
  kRing = 6,
  kPiece = 7,
  kTaken = 8,
  kConsumed = 9,
  kFlush = 10,
  kFlushed = 11,
  kCopied = 12,
  kGroupEnd = 13,
};

struct PeerMessage {
  PeerStep step{};
  uint8_t dtype = 0;
  int32_t tag = 0;
  uint32_t set = 0;    // serial number of the process set
  uint64_t id = 0;     // id of an offer, unique for its sender; never 0
  uint64_t count = 0;  // elements of the message; bytes in taken and consumed
  ByteView rest;       // the bytes after the header; points into the message
};

// A place in the sender's shared memory.
struct PeerPlace {
  uint64_t block = 0, size = 0, offset = 0;
};

constexpr size_t kPeerHeader = 32;
std::array<std::byte, kPeerHeader> header_of(const PeerMessage& message);
Status decode(ByteView bytes, PeerMessage* message);
Status decode(ByteView bytes, PeerPlace* place);

}  // namespace hvd::runtime
