// What passes between a rank and its agent, and the records that they carry: what parses, writes
// to the same again.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "rendezvous/client/gathering.h"
#include "rendezvous/wire/world_report.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace gathering = hvd::rendezvous::gathering;
  const hvd::ByteView bytes(reinterpret_cast<const std::byte*>(data), size);
  if (const auto message = gathering::decode(bytes); message.ok()) {
    const hvd::Bytes again = gathering::encode(*message);
    HVD_CHECK(hvd::as_text(again) == hvd::as_text(bytes));
  }
  if (const auto report = hvd::rendezvous::decode_world_report(bytes); report.ok()) {
    HVD_CHECK(hvd::as_text(hvd::rendezvous::encode(*report)) == hvd::as_text(bytes));
  }
  constexpr int kCount = 3;
  const auto records = gathering::split(bytes, kCount);
  if (!records.ok()) return 0;
  HVD_CHECK(records->size() == kCount);
  std::map<int32_t, hvd::Bytes> host;
  for (int i = 0; i < kCount; ++i) host.emplace(i, (*records)[static_cast<size_t>(i)]);
  const auto again = gathering::split(gathering::join({gathering::pack(host)}), kCount);
  HVD_CHECK(again.ok() && *again == *records);
  return 0;
}
