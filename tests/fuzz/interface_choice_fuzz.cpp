// Rules that parse accept or refuse any address, and refuse each name that they exclude.

#include "base/bytes.h"
#include "fuzz/target.h"
#include "net/interfaces.h"

HVD_FUZZ_TARGET(interface_choice) {
  const auto choice = hvd::net::InterfaceChoice::parse(text);
  if (!choice.ok()) {
    HVD_CHECK(choice.error().message().starts_with("--network-interfaces"));
    return;
  }
  for (const size_t length : {size_t{4}, size_t{16}}) {
    hvd::Bytes address(length);
    for (size_t i = 0; i < length && i < size; ++i) address[i] = std::byte(data[i]);
    const bool is_allowed = choice->allows("eth0", address);
    HVD_CHECK(is_allowed || !choice->allows_all());
  }
}
