#include "runtime/core/device_turns.h"

#include "base/bytes.h"
#include "base/log/log.h"
#include "base/text.h"
#include "runtime/core/runtime_core.h"

namespace hvd::runtime {
namespace {

enum class Kind : uint8_t { kRequest = 1, kTurn = 2 };

Bytes message_of(Kind kind, uint32_t serial) { return ByteWriter().put(kind).put(serial).take(); }

}  // namespace

void DeviceTurns::request(uint32_t serial) {
  core_->to_root(ServiceId::kDeviceTurns, message_of(Kind::kRequest, serial));
}

void DeviceTurns::receive(int32_t from, ByteView message) {
  ByteReader in(message);
  const auto kind = in.get<Kind>();
  const auto serial = in.get<uint32_t>();
  if (in.failed() || (kind != Kind::kRequest && kind != Kind::kTurn)) {
    log::warning(cat("rank ", from, ": a malformed message about the order of batches on devices"));
  } else if (kind == Kind::kTurn) {
    core_->give_turn(serial);
  } else if (core_->is_root()) {
    core_->to_all(ServiceId::kDeviceTurns, message_of(Kind::kTurn, serial));
  }
}

}  // namespace hvd::runtime
