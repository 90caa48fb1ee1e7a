// Lines of a PMI server, and variables of a step of Slurm.
#include "bootstrap/pmi/pmi_wire.h"
#include "bootstrap/slurm/step.h"
#include "fuzz/target.h"

HVD_FUZZ_TARGET(bootstrap) {
  if (const auto fields = hvd::bootstrap::parse_pmi(text); fields.ok()) {
    (void)hvd::bootstrap::check_pmi(*fields, "get_result");
  }
  if (const auto hosts = hvd::bootstrap::hosts_of_step(text); hosts.ok() && hosts->empty())
    __builtin_trap();
  for (int64_t node : {0, 1, 5}) {
    const auto tasks = hvd::bootstrap::tasks_of_node(text, node);
    if (tasks.ok() && *tasks < 1) __builtin_trap();
  }
}
