#include "launcher/agent/ranks/thread_share.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace hvd::launcher {
namespace {

// OpenBLAS and MKL read their own variable first, then OpenMP's variable.
constexpr std::array<std::string_view, 3> kChosenBy = {kThreadsVariable, "MKL_NUM_THREADS",
                                                       "OPENBLAS_NUM_THREADS"};

}  // namespace

uint32_t thread_share(const HostJob& job, const Environment& environment, double cores) {
  if (job.ranks.size() < 2 || value_of(environment, "HOROVOD_OMP_DEFAULT") == "0") return 0;
  const bool is_chosen = std::ranges::any_of(environment, [](const auto& variable) {
    return std::ranges::find(kChosenBy, variable.first) != kChosenBy.end();
  });
  if (is_chosen) return 0;
  return std::max<uint32_t>(1,
                            static_cast<uint32_t>(cores / static_cast<double>(job.ranks.size())));
}

}  // namespace hvd::launcher
