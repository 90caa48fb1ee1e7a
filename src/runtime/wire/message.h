// Messages between the runtimes of a job, as bytes. Every message begins with its kind. decode()
// returns an error for a truncated or oversized message, and checks shapes and the plan's indexes;
// receivers check ranks and ids. Decoders fill a value that the caller keeps, so that steady
// traffic allocates nothing.
//
//   announcement  child -> parent   names that became ready in the complete subtree
//   plan          parent -> child   batches to run, in order
//   leave         child -> parent   a rank wants to leave (hvd_shutdown)
//   stop          parent -> child   the process sets with the rank that left end
//   stopped       child -> parent   the complete subtree has run all earlier plans
//   goodbye       parent -> child   every rank has stopped: links may be closed
//   abort         any neighbour     the first cause of a failure
//   tentative     parent -> child   the plan if the child's next announcement has the same names
//                                   (speculation.h)
//   to_root       child -> parent   message of a service (service.h), forwarded to the root
//   to_all        parent -> child   message of a service, forwarded to the complete subtree
//   peer          any rank to any   a step of a send or receive (PeerMessage)
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {

enum class MessageKind : uint8_t {
  kAnnouncement = 1,
  kPlan = 2,
  kLeave = 3,
  kStop = 4,
  kStopped = 5,
  kGoodbye = 6,
  kAbort = 7,
  kToRoot = 8,
  kToAll = 9,
  kTentativePlan = 10,
  kPeer = 11,
};

// The input data of the batch that a rank expects next, one tensor after another. Points into the
// message, at a multiple of 16 bytes.
struct EagerData {
  ByteView bytes;
  bool empty() const { return bytes.empty(); }
  bool operator==(const EagerData& other) const { return as_text(bytes) == as_text(other.bytes); }
};

// One of the different requests for a name, and one rank that made it.
struct Variant {
  int32_t rank = 0;
  Request request;
  bool operator==(const Variant&) const = default;
};

// A name in full: the requests of a subtree's ranks for this name.
struct Proposal {
  std::string name;
  uint32_t askers = 1;            // number of ranks with a request; the other ranks have joined
  std::vector<Variant> variants;  // one if all ranks agree; else those of two ranks
  std::vector<RankRows> rows;     // rows of every rank of the subtree, if the operation has rows
  bool operator==(const Proposal&) const = default;
};

struct Announcement {
  uint32_t set = 0;    // the process set's serial number
  uint64_t plans = 0;  // plans that the sender has applied
  // If all following fields are empty, the announcement ends the set's speculation (speculation.h). `ids`: cache ids of
  // the names for which the complete subtree repeats the cached requests.
  std::vector<uint32_t> ids;
  std::vector<Proposal> proposals;
  std::vector<int32_t> joined;  // ranks of the subtree that joined, in the order of joining
  EagerData eager_data;         // data of a batch that consists only of `ids`
  bool operator==(const Announcement&) const = default;
  void clear() {
    eager_data = {};
    ids.clear();
    proposals.clear();
    joined.clear();
  }
  bool empty() const { return ids.empty() && proposals.empty() && joined.empty(); }
};

// A name in a plan. A short item has only a cache id. A full item has all fields, and the name's cache id, or 0. An
// item with an error never runs.
struct PlanItem {
  uint32_t id = 0;
  bool full = false;
  std::string name;
  Request request;
  std::vector<RankRows> rows;
  int32_t error_code = HVD_OK;
  std::string error;
  bool operator==(const PlanItem&) const = default;
};

// The tensors of one dtype of an item.
struct PlanUnit {
  uint32_t item = 0;  // the item's index
  int32_t dtype = HVD_FLOAT32;
  bool operator==(const PlanUnit&) const = default;
};

struct Plan {
  uint32_t set = 0;                 // the process set's serial number
  uint64_t sequence = 0;            // number among the set's plans
  bool last = false;                // the set's last plan
  std::vector<uint32_t> forgotten;  // cache ids that become invalid before the items
  std::vector<PlanItem> items;
  std::vector<std::vector<PlanUnit>> batches;
  EagerData eager_data;  // the sender's data of the only batch, if the sender has the peer's data
  bool operator==(const Plan&) const = default;
};

// The sender is ready for these names and has no other plan in flight: if the receiver's announcement
// number `after` carries eager data for the same names, they become plan `plan` of the set, in one batch.
struct TentativePlan {
  uint32_t set = 0;
  uint64_t plan = 0;
  uint64_t after = 0;
  std::vector<uint32_t> ids;  // ascending
  EagerData eager_data;
  bool operator==(const TentativePlan&) const = default;
};

// `rank`: the leaving rank (leave, stop), the first rank that left (goodbye), or the sender
// (stopped, abort). Only abort has the other fields.
struct Notice {
  int32_t rank = 0;
  int32_t code = HVD_OK;
  std::string text;
  int32_t lost_rank = -1;  // the rank whose loss is the cause
  bool operator==(const Notice&) const = default;
};

// to_root, to_all: bytes for a service, decoded in place.
struct ServiceMessage {
  uint8_t service = 0;
  int32_t rank = 0;  // rank whose service sent the message
  ByteView content;
};

Status peek_kind(ByteView message, MessageKind* kind);
// Reads the process set of an announcement, a plan or a tentative plan.
Status peek_set(ByteView message, uint32_t* set);

void encode(const Announcement& announcement, ByteWriter& out);
Status decode(ByteView message, Announcement* announcement);
void encode(const Plan& plan, ByteWriter& out);
Status decode(ByteView message, Plan* plan);
void encode(const TentativePlan& tentative, ByteWriter& out);
Status decode(ByteView message, TentativePlan* tentative);
// Like encode(), without the eager data, which is the end of the message.
void encode_head(const Announcement& announcement, ByteWriter& out);
void encode_head(const Plan& plan, ByteWriter& out);
void encode_head(const TentativePlan& tentative, ByteWriter& out);
void encode(MessageKind kind, const Notice& notice, ByteWriter& out);
Status decode(ByteView message, Notice* notice);
void encode(MessageKind kind, const ServiceMessage& message_out, ByteWriter& out);
Status decode(ByteView message, ServiceMessage* message_out);

// Messages of a send or receive between two ranks, as bytes: a header of a fixed size, and the
// bytes after it. decode() checks the size, the step, and the element count and dtype of data and
// offer; the caller checks the other fields.
//
//   data       sender -> receiver   a small message, whose bytes follow
//   offer      sender -> receiver   a large message: the sender keeps the bytes until the receiver accepts; its
//                                   place follows if it lies in shared memory
//   accept     receiver -> sender   the receiver accepts an offered message
//   refused    receiver -> sender   the receiver refuses it; the reason follows. Also the reply to withdrawn
//   withdrawn  sender -> receiver   the offer has ended; `count` is 1 if the sender waits for refused or copied,
//                                   since its memory may be read until then
//   ring       sender -> receiver   the place of the ring (DataLink) for large messages of the sender
//   piece      sender -> receiver   bytes of an accepted message, without a DataLink
//   taken      receiver -> sender   the receiver has taken `count` bytes of pieces
//   copied     receiver -> sender   the receiver has copied an accepted message from its place
//   consumed   receiver -> sender   the program has received `count` bytes of small messages
//   flush      sender -> receiver   requests `flushed`
//   group_end  any -> any           the sender has left after `count` complete calls of the group with the key `id`;
//                                   with tag 1, it has destroyed only the group
//   flushed    receiver -> sender   all messages of the sender have arrived
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
  uint64_t id = 0;     // id of an offer, unique for its sender, not 0; or key of a group
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
