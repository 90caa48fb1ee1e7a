// The output of nvidia-smi and of rocm-smi, which contains process names of other users.
#include <vector>

#include "fuzz/target.h"
#include "launcher/agent/ranks/gpu_use.h"

namespace {

void check(const hvd::launcher::GpuUse& use) {
  HVD_CHECK(use.processes.size() <= 4096);
  std::vector<pid_t> pids;
  for (const auto& process : use.processes) {
    HVD_CHECK(process.pid > 0);
    pids.push_back(process.pid);
    if (pids.size() == 16) break;  // the sums take quadratic time
  }
  HVD_CHECK(use.bytes_of(pids) <= uint64_t{1} << 63);
  HVD_CHECK(use.percent_of(pids) >= -1 && use.percent_of(pids) <= 100);
}

}  // namespace

HVD_FUZZ_TARGET(gpu_use) {
  check(hvd::launcher::parse_gpu_use(text));
  if (const auto use = hvd::launcher::parse_rocm_use(text)) check(*use);
}
