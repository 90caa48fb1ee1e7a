#include "runtime/bootstrap/process_ancestry.h"

#include <unistd.h>

#include "base/process/proc_stat.h"

namespace hvd::runtime {

std::optional<int64_t> parent_of(int64_t pid) {
  const auto stat = ProcStat::of(pid);
  return stat ? std::optional((*stat)[StatField::kParent]) : std::nullopt;
}

bool is_ancestor(int64_t pid) {
  std::optional<int64_t> each = ::getppid();
  for (int level = 0; level < kMostLevels && each && *each > 1; ++level, each = parent_of(*each)) {
    if (*each == pid) return true;
  }
  return false;
}

}  // namespace hvd::runtime
