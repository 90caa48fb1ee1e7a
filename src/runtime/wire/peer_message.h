// Messages of a send or receive between two ranks, as bytes: a header of a fixed size, and the
// bytes after it. Decoding checks everything.
//
//   data       sender -> receiver   a small message, whose bytes follow
//   offer      sender -> receiver   a large message: the sender keeps the bytes until the receiver accepts; its
//                                   place follows if it lies in shared memory
//   accept     receiver -> sender   the memory for an offered message is there
//   refused    receiver -> sender   it is not: the reason, as text. Also the answer to withdrawn
//   withdrawn  sender -> receiver   the offer has ended; `count` is 1 if the sender waits for refused or copied,
//                                   since its memory may be read until then
//   ring       sender -> receiver   the place of the ring (DataLink) for large messages of the sender
//   piece      sender -> receiver   bytes of an accepted message, where no DataLink carries them
//   taken      receiver -> sender   `count` bytes of pieces were taken
//   copied     receiver -> sender   it has copied an accepted message from its place
//   consumed   receiver -> sender   `count` bytes of small messages were received by the program
//   flush      sender -> receiver   asks for the next one
//   group_end  any -> any           the sender has left after `count` calls of the group with the key `id`; with tag 1
//                                   it has destroyed the group alone
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
  uint64_t id = 0;     // of an offer, unique for its sender; never 0
  uint64_t count = 0;  // elements of the message; bytes in taken and consumed
  ByteView rest;       // the bytes after the header; points into the message
};

// A place in the shared memory of the sender.
struct PeerPlace {
  uint64_t block = 0, size = 0, offset = 0;
};

constexpr size_t kPeerHeader = 32;
std::array<std::byte, kPeerHeader> header_of(const PeerMessage& message);
Status decode(ByteView bytes, PeerMessage* message);
Status decode(ByteView bytes, PeerPlace* place);

}  // namespace hvd::runtime
