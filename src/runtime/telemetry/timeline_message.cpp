#include "runtime/telemetry/timeline_message.h"

#include <cstring>
#include <span>

#include "base/result.h"
#include "base/wire/value_bytes.h"

namespace hvd::runtime {

void encode(const TimelineMessage& message, ByteWriter& out) {
  out.put(message.kind).put(message.run).put(message.ticket);
  out.put(static_cast<uint8_t>(message.mark_cycles)).put(message.time).put(message.offset);
  out.put(message.error).put(message.dropped);
  out.put_text(std::string_view(message.text).substr(0, kLongestTimelineText));
  put(out, message.asks);
  put(out, message.pongs);
  out.put(static_cast<uint32_t>(message.slots.size()));
  out.put_raw(std::as_bytes(std::span(message.slots)));
}

Status decode(ByteView bytes, TimelineMessage* message) {
  ByteReader in(bytes);
  message->kind = in.get<TimelineMessageKind>();
  message->run = in.get<uint32_t>();
  message->ticket = in.get<uint32_t>();
  message->mark_cycles = in.get<uint8_t>() != 0;
  message->time = in.get<int64_t>();
  message->offset = in.get<int64_t>();
  message->error = in.get<int64_t>();
  message->dropped = in.get<uint64_t>();
  message->text = in.get_text();
  get(in, message->asks);
  get(in, message->pongs);
  message->slots.assign(in.get_count(sizeof(TraceSlot)), {});
  const ByteView slots = in.get_raw(message->slots.size() * sizeof(TraceSlot));
  HVD_RETURN_IF_ERROR(in.finish("a message of the timeline"));
  if (!slots.empty())
    std::memcpy(static_cast<void*>(message->slots.data()), slots.data(), slots.size());
  if (message->kind < TimelineMessageKind::kStart || message->kind > TimelineMessageKind::kPong) {
    return invalid_argument("a message of the timeline is of no kind");
  }
  if (message->text.size() > kLongestTimelineText) {
    return invalid_argument("a message of the timeline has too long a text");
  }
  return {};
}

}  // namespace hvd::runtime
