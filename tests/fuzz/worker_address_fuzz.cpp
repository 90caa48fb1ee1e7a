#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "launcher/elastic/worker_address.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto address =
      hvd::launcher::decode_worker_address({reinterpret_cast<const std::byte*>(data), size});
  if (!address.ok()) return 0;
  HVD_CHECK(address->key.size() == 32 && address->addresses.size() <= 256);
  for (const auto& [host, port] : address->addresses) HVD_CHECK(host.size() <= 64 && port > 0);
  return 0;
}
