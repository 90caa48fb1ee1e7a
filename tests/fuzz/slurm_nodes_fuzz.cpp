#include "fuzz/target.h"
#include "launcher/allocation/slurm_nodes.h"

HVD_FUZZ_TARGET(slurm_nodes) {
  static_cast<void>(hvd::launcher::parse_kill_wait(text));
  const auto nodes = hvd::launcher::parse_slurm_nodes(text, "7");
  HVD_CHECK(nodes.ok() || !nodes.status().message().empty());
  if (!nodes.ok()) return;
  for (const auto& node : *nodes) {
    HVD_CHECK(!node.name.empty() && node.gpus >= 0 && node.component >= -1);
    HVD_CHECK(node.resources.find('(') == std::string::npos);
  }
}
