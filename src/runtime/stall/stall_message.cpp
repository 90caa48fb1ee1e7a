#include "runtime/stall/stall_message.h"

#include <cmath>

#include "base/result.h"

namespace hvd::runtime {
namespace {

double as_seconds(double seconds) { return std::isfinite(seconds) && seconds > 0 ? seconds : 0; }

template <typename T>
Status decode_fields(ByteView message, T* fields, std::string_view what) {
  ByteReader in(message);
  in.get<StallMessageKind>();
  get(in, *fields);
  return in.finish(what);
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

Status decode(ByteView message, StallHello* hello) {
  return decode_fields(message, hello, "a rank's hello");
}

Status decode(ByteView message, StallWaiting* waiting) {
  HVD_RETURN_IF_ERROR(decode_fields(message, waiting, "a report of waiting work"));
  for (auto& entry : waiting->entries) entry.seconds = as_seconds(entry.seconds);
  return {};
}

Status decode(ByteView message, StallAsk* ask) {
  return decode_fields(message, ask, "a question about waiting work");
}

Status decode(ByteView message, StallAnswer* answer) {
  HVD_RETURN_IF_ERROR(decode_fields(message, answer, "an answer about waiting work"));
  for (const StallState state : answer->states) {
    if (state > StallState::kExcused) {
      return invalid_argument("an answer about waiting work has an unknown state");
    }
  }
  answer->last_seconds = as_seconds(answer->last_seconds);
  return {};
}

}  // namespace hvd::runtime
