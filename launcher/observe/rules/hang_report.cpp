#include "launcher/observe/rules/hang_report.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/text.h"
#include "launcher/output/line_folder.h"

namespace hvd::launcher {
namespace {

// Maximum number of groups of ranks that are named; further groups are only counted.
constexpr size_t kMostGroups = 8;

struct RanksThere {
  std::string what;
  bool is_waiting = false;
  std::vector<int> ranks;
};

std::string what_of(const RankPlace& place) {
  const std::string at = place.line.empty() ? "" : cat(", ", printable(place.line));
  if (!place.library.empty())
    return cat(printable(place.library), ": ", printable(place.operation), at);
  if (!place.line.empty()) return cat("in ", printable(place.function), at);
  return place.state.empty() ? "without a process" : printable(place.state);
}

std::vector<RanksThere> groups_of(const HangRule::Places& places) {
  std::vector<RanksThere> groups;
  for (const auto& [rank, place] : places) {
    const std::string what = what_of(place);
    const bool is_waiting = !place.library.empty();
    const auto same = std::ranges::find_if(groups, [&](const RanksThere& each) {
      return each.what == what && each.is_waiting == is_waiting;
    });
    if (same != groups.end())
      same->ranks.push_back(rank);
    else
      groups.push_back({what, is_waiting, {rank}});
  }
  // Waiting groups come first.
  std::ranges::stable_sort(groups, std::greater{}, &RanksThere::is_waiting);
  return groups;
}

std::string describe(const RanksThere& group, const std::vector<std::string>& host_of) {
  const bool is_one = group.ranks.size() == 1;
  const char* const verb =
      group.is_waiting ? (is_one ? " waits in " : " wait in ") : (is_one ? " is " : " are ");
  return cat(ranks_on_hosts(group.ranks, host_of), verb, group.what);
}

std::string duration(double seconds) {
  const auto whole = std::lround(seconds);
  return whole < 600 ? cat(whole, " s") : cat(whole / 60, " min");
}

// Returns whether the wait of a rank may be a computation.
bool may_compute(const HangRule::Places& places) {
  const auto is_of_device = [](const auto& each) {
    return each.second.library == "the GPU" || each.second.library == "JAX";
  };
  return std::ranges::any_of(places, is_of_device) ||
         std::ranges::all_of(places, [](const auto& each) {
           return each.second.library.find("NCCL") != std::string::npos;
         });
}

std::string wait_sentence(const HangRule::Finding& finding,
                          const std::vector<std::string>& host_of) {
  HangRule::Places others = finding.places;
  for (const int rank : finding.waiting) others.erase(rank);
  std::vector<std::string> parts;
  for (const RanksThere& group : groups_of(others)) parts.push_back(describe(group, host_of));
  if (parts.size() > kMostGroups) parts.resize(kMostGroups);
  return cat(ranks_on_hosts(finding.waiting, host_of),
             finding.waiting.size() == 1 ? " has" : " have", " waited for ",
             duration(finding.seconds), " in ", what_of(finding.places.at(finding.waiting.front())),
             ", while others work: ", join(parts, "; "));
}

}  // namespace

std::string hang_sentence(const HangRule::Finding& finding, const std::vector<EndedRank>& ended,
                          const std::vector<std::string>& host_of) {
  if (finding.kind == HangRule::Finding::Kind::kWait) return wait_sentence(finding, host_of);
  std::vector<std::string> parts;
  std::vector<RanksThere> groups = groups_of(finding.places);
  const size_t more = groups.size() > kMostGroups ? groups.size() - kMostGroups : 0;
  groups.resize(groups.size() - more);
  for (const RanksThere& group : groups) parts.push_back(describe(group, host_of));
  if (more > 0) parts.push_back(cat("others are in ", more, " more places"));
  for (const EndedRank& each : ended) {
    if (parts.size() > 2 * kMostGroups) break;
    parts.push_back(cat(ranks_on_hosts({each.rank}, host_of), " has ended (", each.how, ")"));
  }
  return cat("no rank has moved for ", duration(finding.seconds), ": ", join(parts, "; "),
             may_compute(finding.places) ? "; a long computation on the GPU looks the same" : "");
}

bool is_certain(const HangRule::Finding& finding) {
  return std::ranges::any_of(finding.places, [](const auto& each) {
    return each.second.is_collective != 0 && each.second.no_stack.empty();
  });
}

std::string missing_stacks(const HangRule::Finding& finding,
                           const std::vector<std::string>& host_of) {
  std::vector<int> ranks;
  std::string why;
  for (const auto& [rank, place] : finding.places) {
    if (place.no_stack.empty()) continue;
    ranks.push_back(rank);
    if (why.empty()) why = printable(place.no_stack);
  }
  return ranks.empty() ? "" : cat("no Python stack of ", ranks_on_hosts(ranks, host_of), ": ", why);
}

}  // namespace hvd::launcher
