#include "runtime/stall/stall_message.h"

#include <cmath>

namespace hvd::runtime {
namespace {

constexpr size_t kLeastName = 8;  // process set, length of the text

void put_name(const StallName& name, ByteWriter& out) {
  out.put(name.process_set).put_text(name.name);
}

StallName get_name(ByteReader& in) {
  StallName name;
  name.process_set = in.get<int32_t>();
  name.name = in.get_text();
  return name;
}

double get_seconds(ByteReader& in) {
  const auto seconds = in.get<double>();
  return std::isfinite(seconds) && seconds > 0 ? seconds : 0;
}

}  // namespace

Status peek_kind(ByteView message, StallMessageKind* kind) {
  ByteReader in(message);
  *kind = in.get<StallMessageKind>();
  if (in.failed() || *kind < StallMessageKind::kHello || *kind > StallMessageKind::kAnswer) {
    return invalid_argument("a message about stalls is of no known kind");
  }
  return {};
}

void encode(const StallHello& hello, ByteWriter& out) {
  out.put(StallMessageKind::kHello).put_text(hello.host).put(hello.pid);
}

Status decode(ByteView message, StallHello* hello) {
  ByteReader in(message);
  in.get<StallMessageKind>();
  hello->host = in.get_text();
  hello->pid = in.get<int64_t>();
  return in.finish("a rank's hello");
}

void encode(const StallWaiting& waiting, ByteWriter& out) {
  out.put(StallMessageKind::kWaiting).put(static_cast<uint32_t>(waiting.entries.size()));
  for (const auto& entry : waiting.entries) {
    put_name(entry.name, out);
    out.put(entry.op).put(entry.seconds);
  }
}

Status decode(ByteView message, StallWaiting* waiting) {
  ByteReader in(message);
  in.get<StallMessageKind>();
  waiting->entries.resize(in.get_count(kLeastName + sizeof(int32_t) + sizeof(double)));
  for (auto& entry : waiting->entries) {
    entry.name = get_name(in);
    entry.op = in.get<int32_t>();
    entry.seconds = get_seconds(in);
  }
  return in.finish("a report of waiting work");
}

void encode(const StallAsk& ask, ByteWriter& out) {
  out.put(StallMessageKind::kAsk).put(ask.inquiry).put(static_cast<uint32_t>(ask.names.size()));
  for (const StallName& name : ask.names) put_name(name, out);
}

Status decode(ByteView message, StallAsk* ask) {
  ByteReader in(message);
  in.get<StallMessageKind>();
  ask->inquiry = in.get<uint32_t>();
  ask->names.resize(in.get_count(kLeastName));
  for (StallName& name : ask->names) name = get_name(in);
  return in.finish("a question about waiting work");
}

void encode(const StallAnswer& answer, ByteWriter& out) {
  out.put(StallMessageKind::kAnswer)
      .put(answer.inquiry)
      .put(static_cast<uint32_t>(answer.states.size()));
  for (const StallState state : answer.states) out.put(state);
  out.put_text(answer.last_name)
      .put(answer.last_op)
      .put(answer.last_seconds)
      .put_text(answer.last_program)
      .put_text(answer.stack)
      .put_text(answer.note);
}

Status decode(ByteView message, StallAnswer* answer) {
  ByteReader in(message);
  in.get<StallMessageKind>();
  answer->inquiry = in.get<uint32_t>();
  answer->states.resize(in.get_count(1));
  for (StallState& state : answer->states) {
    state = in.get<StallState>();
    if (state > StallState::kExcused) {
      return invalid_argument("an answer about waiting work has an unknown state");
    }
  }
  answer->last_name = in.get_text();
  answer->last_op = in.get<int32_t>();
  answer->last_seconds = get_seconds(in);
  answer->last_program = in.get_text();
  answer->stack = in.get_text();
  answer->note = in.get_text();
  return in.finish("an answer about waiting work");
}

}  // namespace hvd::runtime
