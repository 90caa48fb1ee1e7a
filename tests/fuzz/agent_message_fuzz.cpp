// A decoded control message must encode to bytes that decode to the same message.
#include "fuzz/target.h"
#include "launcher/protocol/protocol.h"

HVD_FUZZ_TARGET(agent_message) {
  const auto message = hvd::launcher::decode(bytes);
  if (!message.ok()) {
    HVD_CHECK(!message.error().message().empty());
    return;
  }
  const hvd::Bytes encoded = hvd::launcher::encode(*message);
  const auto again = hvd::launcher::decode(encoded);
  HVD_CHECK(again.ok());
  HVD_CHECK(hvd::launcher::encode(*again) == encoded);
}
