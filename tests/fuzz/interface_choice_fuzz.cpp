// Rules that parse accept or refuse any address, and refuse each name that they exclude.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"
#include "fuzz/target.h"
#include "net/interfaces.h"

HVD_FUZZ_TARGET(interface_choice) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto choice = hvd::net::InterfaceChoice::parse(text);
  if (!choice.ok()) {
    HVD_CHECK(choice.error().message().starts_with("--network-interfaces"));
    return 0;
  }
  for (const size_t length : {size_t{4}, size_t{16}}) {
    hvd::Bytes address(length);
    for (size_t i = 0; i < length && i < size; ++i) address[i] = std::byte(data[i]);
    const bool is_allowed = choice->allows("eth0", address);
    HVD_CHECK(is_allowed || !choice->allows_all());
  }
  return 0;
}
