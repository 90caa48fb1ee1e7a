#include "runtime/bootstrap/process_ancestry.h"

#include <unistd.h>

#include <string>

#include "base/proc_file.h"
#include "base/text.h"

namespace hvd::runtime {

std::optional<int64_t> parent_of(int64_t pid) {
  const std::string stat = read_proc_file(cat("/proc/", pid, "/stat"));
  // After the name, which may hold any character: the state, and the parent.
  const size_t close = stat.rfind(')');
  if (close == std::string::npos || stat.size() < close + 5) return {};
  const size_t end = stat.find(' ', close + 4);
  return parse_int(stat.substr(close + 4, end - close - 4));
}

bool is_ancestor(int64_t pid) {
  std::optional<int64_t> each = ::getppid();
  for (int level = 0; level < kMostLevels && each && *each > 1; ++level, each = parent_of(*each)) {
    if (*each == pid) return true;
  }
  return false;
}

}  // namespace hvd::runtime
