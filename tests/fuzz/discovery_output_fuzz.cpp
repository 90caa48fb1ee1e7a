#include <set>

#include "fuzz/target.h"
#include "launcher/allocation/script_discovery.h"

HVD_FUZZ_TARGET(discovery_output) {
  const auto output = hvd::launcher::parse_discovery_output(text, 3);
  int64_t slots = 0;
  std::set<std::string> names;
  for (const auto& host : output.hosts) {
    HVD_CHECK(hvd::launcher::check_host_name(host.name).ok());
    HVD_CHECK(host.slots >= 1 && host.slots <= hvd::launcher::kMaxSlotsPerHost);
    HVD_CHECK(names.insert(host.name).second);
    slots += host.slots;
  }
  HVD_CHECK(slots <= hvd::launcher::kMaxSlots);
  HVD_CHECK(output.warnings.size() <= 21);
  for (const auto& warning : output.warnings) HVD_CHECK(!warning.empty() && warning.size() < 1000);
}
