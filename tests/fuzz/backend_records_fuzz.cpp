// Records that ranks write into the job's store before a backend starts: the rounds of ops/common,
// the addresses of Gloo, the id of NCCL. oneCCL's store passes bytes to its library unread. The
// first byte is the number of records; each record follows its length in two bytes.
#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/target.h"
#include "horovod/plugin.h"
#include "ops/common/rounds.h"
#include "ops/gloo/addresses.h"
#include "ops/nccl/device_record.h"

namespace {

using namespace hvd;

constexpr size_t kLongest = 192;  // the longest address of Gloo

std::vector<std::string> records_of(const uint8_t* data, size_t size) {
  std::vector<std::string> records(size == 0 ? 1 : 1 + data[0] % 8);
  size_t at = 1;
  for (std::string& record : records) {
    if (at + 2 > size) break;
    const size_t wanted = data[at] + 256u * data[at + 1];
    const size_t length = std::min(wanted, size - at - 2);
    record.assign(reinterpret_cast<const char*>(data) + at + 2, length);
    at += 2 + length;
  }
  return records;
}

// Rank 0's view of the job's store, with these records of all ranks.
hvd_plugin_host host_with(std::vector<std::string>& records) {
  hvd_plugin_host host{};
  host.struct_size = sizeof host;
  host.host = &records;
  host.log = [](void*, int, const char*) {};
  host.setting = [](void*, const char*) -> const char* { return nullptr; };
  host.store_exchange = [](void* self, const char*, int32_t, int32_t, const void*, size_t,
                           const int32_t*, int32_t, double,
                           void (*on_record)(void*, const void*, size_t), void* argument) -> int {
    for (const std::string& record : *static_cast<std::vector<std::string>*>(self)) {
      on_record(argument, record.data(), record.size());
    }
    return HVD_OK;
  };
  return host;
}

}  // namespace

HVD_FUZZ_TARGET(backend_records) {
  std::vector<std::string> records = records_of(data, size);
  const hvd_plugin_host host = host_with(records);
  hvd_plugin_config config{};
  config.struct_size = sizeof config;
  config.size = static_cast<int32_t>(records.size());
  const auto agreed = ops::Rounds(host, config).exchange("round", {}, "own");
  if (agreed.ok()) {
    HVD_CHECK(agreed->size() == records.size());
    (void)ops::check_same_library(*agreed, "all ranks need one version");
  }
  const size_t members = records.size();
  for (const std::string& record : records) {
    for (size_t member = 0; member < members; ++member) {
      const auto address = ops::gloo_backend::take_address(record, members, kLongest, member);
      HVD_CHECK(!address.ok() || address->size() <= kLongest);
    }
    (void)ops::nccl::parse_id_record(record);
  }
}
