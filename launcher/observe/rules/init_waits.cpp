#include "launcher/observe/rules/init_waits.h"

#include <algorithm>

#include "base/text.h"
#include "launcher/output/line_folder.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {

void InitWaits::joined(const Joined& joined, Time now) {
  if (joined.start.empty() || !hosts_.has_rank(joined.rank)) return;
  const auto size = static_cast<size_t>(hosts_.size());
  const auto [found, is_new] = starts_.try_emplace(cat(joined.start, joined.ranks));
  Start& start = found->second;
  if (is_new) {
    auto members = joined.ranks.empty() ? std::vector<bool>(size, true)
                                        : parse_ranks(joined.ranks, hosts_.size());
    // Ignore a report whose list of ranks lacks the reporting rank.
    if (!members.ok() || !(*members)[static_cast<size_t>(joined.rank)]) {
      starts_.erase(found);
      return;
    }
    start = {*std::move(members), std::vector<bool>(size), now, false};
  }
  start.present[static_cast<size_t>(joined.rank)] = true;
  start.has_met |= joined.has_met != 0;
}

InitWaits::Wait InitWaits::wait_of(const Start& start, bool is_hopeless) const {
  Wait wait;
  wait.since = start.since;
  for (const RankRun& rank : hosts_.ranks()) {
    const auto index = static_cast<size_t>(rank.number());
    if (!start.members[index]) continue;
    if (start.present[index]) {
      if (!rank.is_over()) wait.present.push_back(rank.number());
    } else if (rank.is_over() == is_hopeless) {
      wait.missing.push_back(rank.number());
    }
  }
  return wait;
}

std::optional<InitWaits::Wait> InitWaits::find(bool is_hopeless) const {
  std::optional<Wait> longest;
  for (const auto& [name, start] : starts_) {
    if (start.has_met || (longest && longest->since <= start.since)) continue;
    Wait wait = wait_of(start, is_hopeless);
    if (!wait.present.empty() && !wait.missing.empty()) longest = std::move(wait);
  }
  return longest;
}

std::optional<InitWaits::Wait> InitWaits::of(int rank) const {
  for (const auto& [name, start] : starts_) {
    if (start.has_met || rank < 0 || !start.present[static_cast<size_t>(rank)]) continue;
    Wait wait = wait_of(start, false);
    if (!wait.missing.empty()) return wait;
  }
  return {};
}

std::string start_line(size_t ranks, const std::optional<InitWaits::Wait>& wait,
                       const std::vector<std::string>& host_of, double seconds, size_t columns) {
  std::string line = cat("ranks started ", ranks);
  if (wait) {
    line += cat("; importing ", wait->missing.size(), " (", ranks_on_hosts(wait->missing, host_of),
                "); in hvd.init ", wait->present.size());
  }
  line += cat("; ", static_cast<int64_t>(seconds), " s");
  return line.size() < columns ? line : line.substr(0, std::max<size_t>(columns, 2) - 2);
}

std::string wait_sentence(const InitWaits::Wait& wait, const std::vector<std::string>& host_of,
                          int64_t seconds, const std::string& activity) {
  const bool is_one = wait.missing.size() == 1;
  return cat(ranks_on_hosts(wait.missing, host_of), is_one ? " has" : " have",
             " not called hvd.init() for ", seconds, " s",
             activity.empty()
                 ? ""
                 : cat(": ", is_one ? "" : cat("rank ", wait.missing[0], " is "), activity),
             "; ", wait.present.size() == 1 ? "rank " : "ranks ", ranks_text(wait.present),
             wait.present.size() == 1 ? " waits" : " wait", is_one ? " for it" : " for them");
}

}  // namespace hvd::launcher
