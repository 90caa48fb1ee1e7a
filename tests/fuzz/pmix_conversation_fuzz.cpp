// Messages between an agent and its PMIx helper: refused, or encoded again to the same bytes.
#include "fuzz/target.h"
#include "launcher/pmix/conversation.h"

HVD_FUZZ_TARGET(pmix_conversation) {
  using namespace hvd::launcher;
  std::string input(text);
  while (true) {
    const std::string before = input;
    const auto texts = take_texts(input);
    if (!texts) {
      HVD_CHECK(input == before);
      break;
    }
    HVD_CHECK(before == pack_texts(*texts) + input);
    if (const auto order = parse_pmix_order(*texts); order.ok()) {
      HVD_CHECK(order->host < order->names.size() && order->names.size() == order->ranks.size());
      const auto again = parse_pmix_order(to_texts(*order));
      HVD_CHECK(again.ok() && again->ranks == order->ranks && again->names == order->names);
    }
  }
}
