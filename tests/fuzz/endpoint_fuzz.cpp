// Any text as an address: an accepted address formats to a text that parses to the same.

#include "fuzz/target.h"
#include "net/socket_address.h"

HVD_FUZZ_TARGET(endpoint) {
  const auto endpoint = hvd::net::parse_endpoint(text);
  if (!endpoint.ok()) return;
  const auto again = hvd::net::parse_endpoint(hvd::net::to_string(*endpoint));
  HVD_CHECK(again.ok() && *again == *endpoint);
  if (const auto address = hvd::net::numeric_address(*endpoint)) {
    const auto back = hvd::net::numeric_address(hvd::net::to_endpoint(*address));
    HVD_CHECK(back.has_value() && back->size == address->size);
  }
}
