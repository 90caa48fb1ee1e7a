#include "launcher/agent/host/process_activity.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/proc_file.h"
#include "base/text.h"
#include "launcher/agent/host/process_snapshot.h"

namespace hvd::launcher {
namespace {

struct Times {
  uint64_t start = 0;
  uint64_t ticks = 0;
};

std::optional<Times> times_of(pid_t pid) {
  const auto stat = ProcStat::of(pid);
  if (!stat || stat->state() == 'Z') return {};
  const int64_t ticks = (*stat)[StatField::kUserTicks] + (*stat)[StatField::kSystemTicks];
  return Times{static_cast<uint64_t>((*stat)[StatField::kStart]), static_cast<uint64_t>(ticks)};
}

}  // namespace

std::string ProcessActivity::describe(pid_t pid, const std::vector<ProcessEntry>& all) {
  const auto per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const Clock::time_point now = Clock::now();
  pid_t busiest = -1;
  double most = 0, sum = 0;
  for (const ProcessEntry& process : tree_of(pid, all)) {
    const pid_t one = process.pid;
    const auto times = times_of(one);
    if (!times) continue;
    Look& last = looks_[one];
    const bool is_known = last.when != Clock::time_point{} && last.start == times->start;
    const double seconds = is_known ? std::chrono::duration<double>(now - last.when).count()
                                    : age_seconds(static_cast<int64_t>(times->start));
    const uint64_t ticks = times->ticks - (is_known ? last.ticks : 0);
    const double share = static_cast<double>(ticks) / per_second / std::max(seconds, 0.01);
    last = {times->start, times->ticks, now};
    sum += share;
    // If several are equally busy, choose the lowest in the tree: an idle shell waits for the process below it.
    if (busiest >= 0 && share < most) continue;
    busiest = one;
    most = share;
  }
  if (busiest < 0) return {};
  const std::string process = process_activity_line(busiest);
  if (process.empty()) return {};
  const auto percent = std::lround(sum * 100);
  return cat(process, percent == 0 ? ", no CPU time" : cat(", ", percent, " % of a core"));
}

}  // namespace hvd::launcher
