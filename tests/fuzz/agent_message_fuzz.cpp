// A decoded control message must encode to bytes that decode to the same message.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "fuzz/target.h"
#include "launcher/protocol/protocol.h"

HVD_FUZZ_TARGET(agent_message) {
  const auto message = hvd::launcher::decode({reinterpret_cast<const std::byte*>(data), size});
  if (!message.ok()) {
    HVD_CHECK(!message.error().message().empty());
    return 0;
  }
  const hvd::Bytes bytes = hvd::launcher::encode(*message);
  const auto again = hvd::launcher::decode(bytes);
  HVD_CHECK(again.ok());
  HVD_CHECK(hvd::launcher::encode(*again) == bytes);
  return 0;
}
