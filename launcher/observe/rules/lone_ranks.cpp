#include "launcher/observe/rules/lone_ranks.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "launcher/observe/rules/changed_variables.h"

namespace hvd::launcher {
namespace {

// A rank that has waited alone for this time will not find the others. A rank waits if its main thread works for less
// than a tenth of the time: it may also load data for minutes before it looks for the others.
constexpr std::chrono::milliseconds kLongestSearch{10000};
constexpr int kWorkingShare = 10;

bool is_in_torch_distributed(const RankPlace& place) {
  return place.library.starts_with("torch.distributed");
}

// Returns whether the rank waits until all ranks have met.
bool is_in_rendezvous(const RankPlace& place) {
  constexpr std::array<std::string_view, 3> kRendezvous = {"init_process_group", "init_device_mesh",
                                                           "rendezvous"};
  return is_in_torch_distributed(place) && std::ranges::count(kRendezvous, place.operation) != 0;
}

}  // namespace

bool LoneRanks::look(const HangRule::Signs& signs, const HostTable& hosts, Time now) {
  bool has_waited = false;
  is_one_alone_ = false;
  for (const auto& [number, each] : signs) {
    const RankRun& rank = hosts.rank(number);
    Wait& wait = waits_.try_emplace(number, Wait{now, now, each.main_microseconds}).first->second;
    const std::chrono::microseconds worked(
        static_cast<int64_t>(each.main_microseconds - wait.main_microseconds));
    // Without a Python of its own, the rank's main thread is unknown.
    const bool is_idle = each.main_microseconds != 0 && kWorkingShare * worked <= now - wait.seen;
    wait = {is_idle ? wait.idle_since : now, now, each.main_microseconds};
    const bool is_changed = rank.knows_changes() && !rank.changes().empty();
    if (!is_changed || each.alone_milliseconds == 0) continue;
    is_one_alone_ = true;
    const std::chrono::milliseconds alone(static_cast<int64_t>(each.alone_milliseconds));
    has_waited |= alone >= kLongestSearch && now - wait.idle_since >= kLongestSearch;
  }
  have_torch_ =
      signs.size() == hosts.ranks().size() &&
      std::ranges::all_of(signs, [](const auto& each) { return each.second.has_torch != 0; });
  return has_waited && have_torch_ && !makes_whole_worlds(hosts);
}

bool LoneRanks::may_explain(const HangRule::Places& places, const HostTable& hosts) const {
  if (!have_torch_ || makes_whole_worlds(hosts)) return false;
  const auto some = [&](bool (*is_so)(const RankPlace&)) {
    return std::ranges::any_of(places, [&](const auto& each) { return is_so(each.second); });
  };
  return some(is_in_rendezvous) || (is_one_alone_ && !some(is_in_torch_distributed));
}

}  // namespace hvd::launcher
