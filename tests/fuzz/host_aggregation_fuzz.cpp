// Messages between a rank and its agent, and their records: each text that parses formats to the
// same text.
#include "fuzz/target.h"
#include "rendezvous/client/host_aggregation.h"
#include "rendezvous/wire/world_report.h"

HVD_FUZZ_TARGET(host_aggregation) {
  namespace host_aggregation = hvd::rendezvous::host_aggregation;
  if (const auto message = host_aggregation::decode(bytes); message.ok()) {
    const hvd::Bytes again = host_aggregation::encode(*message);
    HVD_CHECK(hvd::as_text(again) == hvd::as_text(bytes));
  }
  if (const auto report = hvd::rendezvous::decode_world_report(bytes); report.ok()) {
    HVD_CHECK(hvd::as_text(hvd::rendezvous::encode(*report)) == hvd::as_text(bytes));
  }
  constexpr int kCount = 3;
  const auto records = host_aggregation::split(bytes, kCount);
  if (!records.ok()) return;
  HVD_CHECK(records->size() == kCount);
  std::map<int32_t, hvd::Bytes> host;
  for (int i = 0; i < kCount; ++i) host.emplace(i, (*records)[static_cast<size_t>(i)]);
  const auto again =
      host_aggregation::split(host_aggregation::join({host_aggregation::pack(host)}), kCount);
  HVD_CHECK(again.ok() && *again == *records);
}
