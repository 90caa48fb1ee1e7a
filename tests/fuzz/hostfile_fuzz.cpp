#include "fuzz/target.h"
#include "launcher/plan/hosts.h"

HVD_FUZZ_TARGET(hostfile) {
  const auto hosts = hvd::launcher::parse_hostfile(text, "hosts");
  HVD_CHECK(hosts.ok() || !hosts.status().message().empty());
  if (!hosts.ok()) return;
  HVD_CHECK(!hosts->hosts.empty());
  for (const auto& host : hosts->hosts) {
    HVD_CHECK(!host.name.empty() && host.name.front() != '-' && host.slots >= 1);
  }
}
