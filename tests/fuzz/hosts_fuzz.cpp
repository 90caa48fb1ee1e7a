#include "fuzz/target.h"
#include "launcher/plan/hosts.h"

HVD_FUZZ_TARGET(hosts) {
  const auto hosts = hvd::launcher::parse_hosts(text);
  HVD_CHECK(hosts.ok() || !hosts.status().message().empty());
  if (!hosts.ok()) return;
  HVD_CHECK(!hosts->empty());
  for (const auto& host : *hosts) {
    HVD_CHECK(!host.name.empty() && host.name.front() != '-' && host.slots >= 1);
  }
}
