// Lists of parties and records: refused, or well-formed.
#include "fuzz/target.h"
#include "rendezvous/store/exchange.h"

HVD_FUZZ_TARGET(exchange) {
  using namespace hvd::rendezvous;
  constexpr int kCount = 1000;
  if (const auto ranges = parse_ranges(text, kCount); ranges.ok()) {
    int above = -1;
    for (const auto& [first, last] : *ranges) {
      HVD_CHECK(first > above && last >= first && last < kCount);
      above = last;
    }
    const auto again = parse_ranges(to_text(*ranges), kCount);
    HVD_CHECK(again.ok() && *again == *ranges);
  }
  if (const auto records = parse_records(bytes); records.ok()) {
    size_t total = 0;
    for (const Record& record : *records) total += record.bytes.size() + 4;
    HVD_CHECK(total <= size);
  }
}
