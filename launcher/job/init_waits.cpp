#include "launcher/job/init_waits.h"

#include <algorithm>

#include "base/text.h"
#include "launcher/output/line_folder.h"
#include "launcher/plan/rank_set.h"

namespace hvd::launcher {

void InitWaits::joined(const Joined& joined, Time now) {
  const auto size = static_cast<int>(ended_.size());
  if (joined.start.empty() || joined.rank < 0 || joined.rank >= size) return;
  const auto [found, is_new] = starts_.try_emplace(cat(joined.start, joined.ranks));
  Start& start = found->second;
  if (is_new) {
    auto members = joined.ranks.empty() ? std::vector<bool>(ended_.size(), true)
                                        : parse_ranks(joined.ranks, size);
    // A rank that is no member of what it reports says nothing about others.
    if (!members.ok() || !(*members)[static_cast<size_t>(joined.rank)]) {
      starts_.erase(found);
      return;
    }
    start = {*std::move(members), std::vector<bool>(ended_.size()), now, false};
  }
  start.present[static_cast<size_t>(joined.rank)] = true;
  start.has_met |= joined.has_met != 0;
}

void InitWaits::ended(int rank) {
  if (rank >= 0 && rank < static_cast<int>(ended_.size()))
    ended_[static_cast<size_t>(rank)] = has_end_ = true;
}

InitWaits::Wait InitWaits::wait_of(const Start& start, bool is_hopeless) const {
  Wait wait;
  wait.since = start.since;
  for (size_t rank = 0; rank < ended_.size(); ++rank) {
    if (!start.members[rank]) continue;
    const auto number = static_cast<int>(rank);
    if (start.present[rank]) {
      if (!ended_[rank]) wait.present.push_back(number);
    } else if (ended_[rank] == is_hopeless) {
      wait.missing.push_back(number);
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

std::string ranks_on_hosts(const std::vector<int>& ranks, const std::vector<std::string>& host_of) {
  constexpr size_t kMostHosts = 3;
  std::vector<std::string> hosts;
  for (const int rank : ranks) {
    const std::string& host = host_of[static_cast<size_t>(rank)];
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  }
  const size_t more = hosts.size() > kMostHosts ? hosts.size() - kMostHosts : 0;
  hosts.resize(hosts.size() - more);
  return cat(ranks.size() == 1 ? "rank " : "ranks ", ranks_text(ranks), " on ", join(hosts, ", "),
             more > 0 ? cat(" and ", more, more == 1 ? " more host" : " more hosts") : "");
}

}  // namespace hvd::launcher
