// Records that an earlier server has stored: a name up to the first zero byte, then the record. The
// parser refuses them, or reads them into a server's parts, which are complete then.
#include <algorithm>

#include "fuzz/target.h"
#include "rendezvous/store/durable_store.h"
#include "rendezvous/store/exchange.h"
#include "rendezvous/store/membership.h"
#include "rendezvous/store/state.h"

HVD_FUZZ_TARGET(records) {
  using namespace hvd::rendezvous;
  const auto zero = std::find(bytes.begin(), bytes.end(), std::byte{0});
  const auto length = static_cast<size_t>(zero - bytes.begin());
  const std::string name(hvd::as_text(bytes.first(length)));
  const hvd::ByteView record = bytes.subspan(std::min(size, length + 1));
  StoreState state;
  if (state.restore(name, record).ok() &&
      name.front() == static_cast<char>(records::RecordKind::kValue)) {
    HVD_CHECK(state.key_count() == 1 && state.get(name.substr(1)) != nullptr);
  }
  Exchanges exchanges;
  // Names of exchanges contain zeros.
  const size_t half = size / 2;
  if (exchanges.restore(hvd::as_text(bytes.first(half)), bytes.subspan(half)).ok()) {
    const auto place = records::read_exchange_name(hvd::as_text(bytes.first(half)));
    HVD_CHECK(place.ok() && exchanges.describe(place->exchange).starts_with("exchange '"));
  }
  Membership membership(2);
  HVD_CHECK(membership.restore(record).ok() == membership.is_complete());
  if (membership.is_complete()) HVD_CHECK(membership.workers().size() <= 2);
}
