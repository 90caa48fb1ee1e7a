#include "runtime/telemetry/metrics_message.h"

#include <cstring>
#include <span>
#include <type_traits>

#include "base/result.h"
#include "base/utf8.h"
#include "base/wire/value_bytes.h"

namespace hvd::runtime {
namespace {

static_assert(std::is_trivially_copyable_v<Metrics> && sizeof(Metrics) % sizeof(uint64_t) == 0 &&
              std::has_unique_object_representations_v<Metrics>);
constexpr size_t kLongestHost = 256;
constexpr size_t kLongestGroup = 256;

}  // namespace

void encode(const MetricsMessage& message, ByteWriter& out) {
  out.put(message.kind).put(message.number);
  put(out, message.asks);
  out.put(static_cast<uint32_t>(message.values.size()));
  for (const MetricsOfRank& value : message.values) {
    out.put(value.rank).put_text(front_of(value.host, kLongestHost));
    out.put_raw(std::as_bytes(std::span(&value.metrics, 1)));
    out.put(static_cast<uint32_t>(value.groups.size()));
    for (const GroupCalls& group : value.groups) {
      out.put_text(front_of(group.name, kLongestGroup)).put(group.completed);
    }
  }
}

Status decode(ByteView bytes, MetricsMessage* message) {
  ByteReader in(bytes);
  message->kind = in.get<MetricsMessageKind>();
  message->number = in.get<uint32_t>();
  get(in, message->asks);
  message->values.assign(in.get_count(sizeof(Metrics)), {});
  for (MetricsOfRank& value : message->values) {
    value.rank = in.get<int32_t>();
    value.host = in.get_text();
    const ByteView raw = in.get_raw(sizeof value.metrics);
    if (!raw.empty()) std::memcpy(static_cast<void*>(&value.metrics), raw.data(), raw.size());
    if (value.host.size() > kLongestHost) return invalid_argument("a host's name is too long");
    value.groups.assign(in.get_count(sizeof(uint64_t)), {});
    for (GroupCalls& group : value.groups) {
      group.name = in.get_text();
      group.completed = in.get<uint64_t>();
      if (group.name.size() > kLongestGroup) return invalid_argument("a group's name is too long");
    }
  }
  HVD_RETURN_IF_ERROR(in.finish("a message of the metrics"));
  if (message->kind < MetricsMessageKind::kAsk || message->kind > MetricsMessageKind::kResult) {
    return invalid_argument("a message of the metrics is of no kind");
  }
  return {};
}

}  // namespace hvd::runtime
