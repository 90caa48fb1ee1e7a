#include "runtime/wire/message.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

template <typename T>
void put_numbers(const std::vector<T>& numbers, ByteWriter& out) {
  out.put(static_cast<uint32_t>(numbers.size()));
  out.put_raw(std::as_bytes(std::span(numbers)));
}

// Appends both values at once: a plan has thousands of such pairs.
template <typename A, typename B>
void put_pair(A first, B second, ByteWriter& out) {
  std::array<std::byte, sizeof(A) + sizeof(B)> bytes;
  std::memcpy(bytes.data(), &first, sizeof(A));
  std::memcpy(bytes.data() + sizeof(A), &second, sizeof(B));
  out.put_raw(bytes);
}

template <typename T>
void get_numbers(ByteReader& in, std::vector<T>* numbers) {
  numbers->resize(in.get_count(sizeof(T)));
  const ByteView raw = in.get_raw(numbers->size() * sizeof(T));
  if (!raw.empty()) std::memcpy(numbers->data(), raw.data(), raw.size());
}

Status get_proposal(ByteReader& in, Proposal* proposal) {
  proposal->name = in.get_text();
  proposal->askers = in.get<uint32_t>();
  proposal->variants.resize(in.get_count(30));
  for (Variant& variant : proposal->variants) {
    variant.rank = in.get<int32_t>();
    HVD_RETURN_IF_ERROR(get_request(in, &variant.request));
  }
  if (!in.failed() && proposal->variants.empty()) {
    return invalid_argument("an announcement proposes a name without a request");
  }
  return get_rows(in, &proposal->rows);
}

enum ItemFlags : uint8_t { kFull = 1, kFailed = 2 };

Status get_item(ByteReader& in, PlanItem* item) {
  const auto flags = in.get<uint8_t>();
  item->id = in.get<uint32_t>();
  const bool was_full = std::exchange(item->full, (flags & kFull) != 0);
  item->error_code = HVD_OK;
  item->error.clear();
  if (item->full) {
    item->name = in.get_text();
    HVD_RETURN_IF_ERROR(get_request(in, &item->request));
    HVD_RETURN_IF_ERROR(get_rows(in, &item->rows));
  } else if (was_full) {
    // The reused item still has values of an earlier plan.
    item->name.clear();
    item->request = {};
    item->rows.clear();
  }
  if ((flags & kFailed) != 0) {
    item->error_code = in.get<uint8_t>();
    item->error = in.get_text();
    if (!in.failed() && (item->error_code <= HVD_OK || item->error_code > HVD_INTERNAL)) {
      return invalid_argument(cat("a plan's item fails with code ", item->error_code));
    }
  }
  return {};
}

// Eager data is at the end of a message, at a multiple of 16 bytes. Zeros fill the gap before the data.
constexpr size_t kAlignment = 16;

size_t gap_at(size_t position) { return (kAlignment - position % kAlignment) % kAlignment; }

void put_eager_data_head(const EagerData& eager_data, ByteWriter& out) {
  out.put(static_cast<uint32_t>(eager_data.bytes.size()));
  if (eager_data.empty()) return;
  constexpr std::byte kZeros[kAlignment]{};
  out.put_raw(ByteView(kZeros).first(gap_at(out.size())));
}

void get_eager_data(ByteView message, ByteReader& in, EagerData* eager_data) {
  const auto size = in.get<uint32_t>();
  if (size > 0) in.get_raw(gap_at(message.size() - in.left()));
  eager_data->bytes = in.get_raw(size);
}

Status check_kind(ByteReader& in, MessageKind kind) {
  if (in.get<MessageKind>() != kind) return invalid_argument("a message is of another kind");
  return {};
}

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

Status peek_kind(ByteView message, MessageKind* kind) {
  ByteReader in(message);
  *kind = in.get<MessageKind>();
  if (in.failed() || *kind < MessageKind::kAnnouncement || *kind > MessageKind::kPeer) {
    return invalid_argument("a message is of no known kind");
  }
  return {};
}

Status peek_set(ByteView message, uint32_t* set) {
  ByteReader in(message);
  in.get<MessageKind>();
  *set = in.get<uint32_t>();
  if (in.failed()) return invalid_argument("a message is cut before its process set");
  return {};
}

void encode(const Announcement& announcement, ByteWriter& out) {
  encode_head(announcement, out);
  out.put_raw(announcement.eager_data.bytes);
}

void encode_head(const Announcement& announcement, ByteWriter& out) {
  out.put(MessageKind::kAnnouncement).put(announcement.set).put(announcement.plans);
  put_numbers(announcement.ids, out);
  put_numbers(announcement.joined, out);
  out.put(static_cast<uint32_t>(announcement.proposals.size()));
  for (const Proposal& proposal : announcement.proposals) {
    out.put_text(proposal.name).put(proposal.askers);
    out.put(static_cast<uint32_t>(proposal.variants.size()));
    for (const Variant& variant : proposal.variants) {
      out.put(variant.rank);
      put_request(variant.request, out);
    }
    put_rows(proposal.rows, out);
  }
  put_eager_data_head(announcement.eager_data, out);
}

Status decode(ByteView message, Announcement* announcement) {
  ByteReader in(message);
  HVD_RETURN_IF_ERROR(check_kind(in, MessageKind::kAnnouncement));
  announcement->set = in.get<uint32_t>();
  announcement->plans = in.get<uint64_t>();
  get_numbers(in, &announcement->ids);
  get_numbers(in, &announcement->joined);
  announcement->proposals.resize(in.get_count(16));
  for (Proposal& proposal : announcement->proposals) {
    HVD_RETURN_IF_ERROR(get_proposal(in, &proposal));
  }
  get_eager_data(message, in, &announcement->eager_data);
  return in.finish("an announcement");
}

void encode(const Plan& plan, ByteWriter& out) {
  encode_head(plan, out);
  out.put_raw(plan.eager_data.bytes);
}

void encode_head(const Plan& plan, ByteWriter& out) {
  out.put(MessageKind::kPlan).put(plan.set).put(plan.sequence);
  out.put(static_cast<uint8_t>(plan.last));
  put_numbers(plan.forgotten, out);
  out.put(static_cast<uint32_t>(plan.items.size()));
  for (const PlanItem& item : plan.items) {
    const bool failed = item.error_code != HVD_OK;
    put_pair(static_cast<uint8_t>((item.full ? kFull : 0) | (failed ? kFailed : 0)), item.id, out);
    if (item.full) {
      out.put_text(item.name);
      put_request(item.request, out);
      put_rows(item.rows, out);
    }
    if (failed) out.put(static_cast<uint8_t>(item.error_code)).put_text(item.error);
  }
  out.put(static_cast<uint32_t>(plan.batches.size()));
  for (const auto& batch : plan.batches) {
    out.put(static_cast<uint32_t>(batch.size()));
    for (const PlanUnit& unit : batch) put_pair(unit.item, static_cast<uint8_t>(unit.dtype), out);
  }
  put_eager_data_head(plan.eager_data, out);
}

Status decode(ByteView message, Plan* plan) {
  ByteReader in(message);
  HVD_RETURN_IF_ERROR(check_kind(in, MessageKind::kPlan));
  plan->set = in.get<uint32_t>();
  plan->sequence = in.get<uint64_t>();
  plan->last = in.get<uint8_t>() != 0;
  get_numbers(in, &plan->forgotten);
  plan->items.resize(in.get_count(5));
  for (PlanItem& item : plan->items) HVD_RETURN_IF_ERROR(get_item(in, &item));
  plan->batches.resize(in.get_count(4));
  for (auto& batch : plan->batches) {
    batch.resize(in.get_count(5));
    for (PlanUnit& unit : batch) {
      unit.item = in.get<uint32_t>();
      unit.dtype = in.get<uint8_t>();
      if (!in.failed() && unit.item >= plan->items.size()) {
        return invalid_argument("a plan's batch names an item that the plan lacks");
      }
    }
  }
  get_eager_data(message, in, &plan->eager_data);
  if (!plan->eager_data.empty() && plan->batches.size() != 1) {
    return invalid_argument("a plan carries eager data, and has not exactly one batch");
  }
  return in.finish("a plan");
}

void encode(const TentativePlan& tentative, ByteWriter& out) {
  encode_head(tentative, out);
  out.put_raw(tentative.eager_data.bytes);
}

void encode_head(const TentativePlan& tentative, ByteWriter& out) {
  out.put(MessageKind::kTentativePlan).put(tentative.set).put(tentative.plan).put(tentative.after);
  put_numbers(tentative.ids, out);
  put_eager_data_head(tentative.eager_data, out);
}

Status decode(ByteView message, TentativePlan* tentative) {
  ByteReader in(message);
  HVD_RETURN_IF_ERROR(check_kind(in, MessageKind::kTentativePlan));
  tentative->set = in.get<uint32_t>();
  tentative->plan = in.get<uint64_t>();
  tentative->after = in.get<uint64_t>();
  get_numbers(in, &tentative->ids);
  get_eager_data(message, in, &tentative->eager_data);
  return in.finish("a tentative plan");
}

void encode(MessageKind kind, const Notice& notice, ByteWriter& out) {
  out.put(kind).put(notice.rank).put(notice.code).put_text(notice.text).put(notice.lost_rank);
}

Status decode(ByteView message, Notice* notice) {
  ByteReader in(message);
  in.get<MessageKind>();
  notice->rank = in.get<int32_t>();
  notice->code = in.get<int32_t>();
  notice->text = in.get_text();
  notice->lost_rank = in.get<int32_t>();
  return in.finish("a notice");
}

void encode(MessageKind kind, const ServiceMessage& message_out, ByteWriter& out) {
  out.put(kind).put(message_out.service).put(message_out.rank).put_blob(message_out.content);
}

Status decode(ByteView message, ServiceMessage* message_out) {
  ByteReader in(message);
  in.get<MessageKind>();
  message_out->service = in.get<uint8_t>();
  message_out->rank = in.get<int32_t>();
  message_out->content = in.get_blob();
  return in.finish("a message of a service");
}

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
