#include "launcher/elastic/job_policy.h"

namespace hvd::launcher {

Result<std::string> ConstantSize::change(const std::vector<std::string>&) {
  return failed_precondition(
      "the number of ranks of this job is constant; start the job with --min-np or "
      "--host-discovery-script to change it");
}

net::Task<void> ConstantSize::end() { co_return; }

}  // namespace hvd::launcher
