#include "launcher/observe/rules/hang_rule.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "launcher/output/line_folder.h"

namespace hvd::launcher {
namespace {

constexpr int kSamples = 3;
// A wait is reported after `limit` times this factor.
constexpr double kWaitLimits = 10;
constexpr double kStopLimits = 2;
// Maximum share of a core that a thread without work uses, including the granularity of the kernel's accounting.
constexpr double kIdleShare = 0.02, kTickSeconds = 0.02;
// If threads wait for a processor for more than this share of the time, they have work.
constexpr double kStarvedShare = 0.5;
// Bytes a second of keep-alive messages between idle processes, such as TCPStore and gRPC.
constexpr double kKeepAlive = 200;
// A pause of at least this time between two looks means that this process or its machine was suspended.
constexpr double kShortestGap = 5;

double seconds_between(HangRule::Time from, HangRule::Time to) {
  return std::chrono::duration<double>(to - from).count();
}

// Returns whether every rank waits in the same operation, which may take long.
bool is_one_operation(const HangRule::Places& places) {
  const RankPlace& first = places.begin()->second;
  return std::ranges::all_of(places, [&](const auto& each) {
    const RankPlace& place = each.second;
    return place.is_collective != 0 && place.library == first.library &&
           place.operation == first.operation;
  });
}

// Returns whether the main thread of a rank that waits at this place may poll, and so use a core: it waits for a GPU,
// or in MPI (UCX).
bool may_spin(const RankPlace& place) {
  const std::string_view library = place.library;
  return library == "MPI" || library == "JAX" || library == "the GPU" ||
         library.find("NCCL") != std::string_view::npos;
}

// Returns whether the rank may wait for its own GPU and not for other ranks. A computation on a GPU looks like a wait
// for other ranks, and without a stack the reason is unknown.
bool may_wait_alone(const RankPlace& place) {
  return place.library == "the GPU" || place.library == "JAX" || !place.no_stack.empty();
}

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

std::string rounded_time(double seconds) {
  const auto whole = std::lround(seconds);
  return whole < 600 ? cat(whole, " s") : cat(whole / 60, " min");
}

// Returns whether a long computation on GPUs, and not a hang, may explain these places.
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
             rounded_time(finding.seconds), " in ",
             what_of(finding.places.at(finding.waiting.front())),
             ", while others work: ", join(parts, "; "));
}

}  // namespace

double HangRule::interval() const { return std::max(limit_ / 8, 0.25); }

void HangRule::forget() {
  ranks_.clear();
  has_written_.clear();
  looked_ = {};
}

bool HangRule::is_quiet(const RankSigns& before, const RankSigns& now, double seconds) {
  const auto is_below = [&](uint64_t RankSigns::*count, double most) {
    return now.*count >= before.*count && static_cast<double>(now.*count - before.*count) <= most;
  };
  // A thread that wakes another thread through an eventfd reads and writes 8 bytes.
  const auto of_eventfds = 8 * static_cast<double>(now.calls - std::min(now.calls, before.calls));
  return now.processes == before.processes && now.storage_bytes == before.storage_bytes &&
         is_below(&RankSigns::bytes, std::min(of_eventfds, kKeepAlive * seconds)) &&
         is_below(&RankSigns::socket_bytes, kKeepAlive * seconds) &&
         is_below(&RankSigns::other_microseconds, 1e6 * (kIdleShare * seconds + kTickSeconds)) &&
         is_below(&RankSigns::other_delay_microseconds, 1e6 * kStarvedShare * seconds);
}

HangRule::Rank HangRule::next(const RankSigns& signs, Time now, double seconds) {
  const Rank moved{signs, now, signs.main_microseconds};
  const auto known = ranks_.find(signs.rank);
  const bool has_written = std::exchange(has_written_[signs.rank], false);
  if (known == ranks_.end() || has_written || !is_quiet(known->second.last, signs, seconds))
    return moved;
  return {signs, known->second.since, known->second.main_since};
}

void HangRule::update(const Signs& signs, Time now, double seconds) {
  bool is_known = ranks_.size() == signs.size();
  std::map<int, Rank> ranks;
  for (const auto& [number, each] : signs) {
    is_known &= ranks_.contains(number) && each.is_excused == 0 && each.is_hidden == 0;
    ranks[number] = next(each, now, seconds);
  }
  ranks_ = std::move(ranks);
  if (is_known) return;
  // A rank was not observed all the time: restart the times of all ranks.
  for (auto& [number, rank] : ranks_) rank = {rank.last, now, rank.last.main_microseconds};
}

// Restarts the measurement of silence: at the first look, and after a rank has moved or observations were discarded.
void HangRule::begin_again(Time since) {
  quiet_since_ = since;
  for (auto& [number, rank] : ranks_) rank.main_since = rank.last.main_microseconds;
  samples_ = 0;
  is_reported_ = is_stopped_ = false;
  pause_ = limit_ / 4;
  next_sample_ = since + duration_of(limit_ / 2);
}

bool HangRule::look(const Signs& signs, Time now) {
  const double gap = seconds_between(looked_, now);
  if (looked_ != Time{} && gap > std::max(kShortestGap, 3 * interval())) forget();
  const bool is_first = looked_ == Time{};
  looked_ = now;
  update(signs, now, gap);
  Time since{};
  for (const auto& [number, rank] : ranks_) since = std::max(since, rank.since);
  if (is_first || since != quiet_since_) begin_again(since);
  std::erase_if(wait_reported_, [&](const auto& each) {
    const auto rank = ranks_.find(each.first);
    return rank == ranks_.end() || rank->second.since != each.second;
  });
  const bool has_new_wait = std::ranges::any_of(ranks_, [&](const auto& each) {
    return seconds_between(each.second.since, now) >= kWaitLimits * limit_ &&
           !wait_reported_.contains(each.first);
  });
  const bool is_wait_due = has_new_wait && now >= next_wait_sample_;
  if (now == quiet_since_) return is_wait_due;
  const bool is_done = is_reported_ && (!may_stop_ || is_stopped_);
  return !is_done && (is_wait_due || now >= next_sample_);
}

// Call if the places cannot be a hang. The pause before the next sample doubles.
void HangRule::postpone(Time now) {
  samples_ = 0;
  next_sample_ = now + duration_of(pause_);
  pause_ = std::min(2 * pause_, kWaitLimits * limit_);
}

std::optional<HangRule::Finding> HangRule::judge(Places places, bool has_ended, Time now) {
  const bool is_whole =
      std::ranges::all_of(ranks_, [&](const auto& each) { return places.contains(each.first); });
  if (ranks_.empty() || !is_whole || places.size() != ranks_.size()) {
    postpone(now);
    next_wait_sample_ = now + duration_of(limit_);
    return {};
  }
  return looked_ > quiet_since_ ? judge_hang(std::move(places), has_ended, now)
                                : judge_wait(std::move(places), now);
}

// Returns whether the main thread of the rank has worked since all ranks became quiet.
bool HangRule::main_is_busy(const Rank& rank) const {
  const double seconds = seconds_between(quiet_since_, looked_);
  const uint64_t now = rank.last.main_microseconds;
  return now < rank.main_since ||
         static_cast<double>(now - rank.main_since) > 1e6 * (kIdleShare * seconds + kTickSeconds);
}

// Returns whether these places can be a hang: a rank waits in a collective, and no rank is excused or has a busy main
// thread.
bool HangRule::is_hang(const Places& places) const {
  bool is_waiting = false, is_moving = false;
  for (const auto& [number, place] : places) {
    is_waiting |= place.is_collective != 0;
    is_moving |= place.is_excused != 0 || (!may_spin(place) && main_is_busy(ranks_.at(number)));
  }
  return is_waiting && !is_moving;
}

std::optional<HangRule::Finding> HangRule::judge_hang(Places places, bool has_ended, Time now) {
  const double seconds = seconds_between(quiet_since_, now);
  if (!is_hang(places)) {
    postpone(now);
    if (seconds < kWaitLimits * limit_) return {};
    // A busy main thread of one rank rules out a hang, but other ranks may wait for this rank.
    auto wait = judge_wait(std::move(places), now);
    next_wait_sample_ = next_sample_;
    return wait;
  }
  const bool is_alike =
      samples_ > 0 && std::ranges::equal(last_, places, [](const auto& one, const auto& other) {
        return one.first == other.first && one.second.frames == other.second.frames;
      });
  samples_ = is_alike ? samples_ + 1 : 1;
  last_ = places;
  next_sample_ = now + duration_of(limit_ / 4);
  if (samples_ < kSamples || seconds < limit_) return {};
  const bool is_outside =
      (has_ended || !is_one_operation(places)) &&
      !std::ranges::any_of(places, [](const auto& each) { return may_wait_alone(each.second); });
  if (!std::exchange(is_reported_, true)) {
    return Finding{Finding::Kind::kHang, seconds, {}, std::move(places)};
  }
  if (!may_stop_ || seconds < kStopLimits * limit_ || !is_outside) return {};
  is_stopped_ = true;
  return Finding{Finding::Kind::kStop, seconds, {}, std::move(places)};
}

std::optional<HangRule::Finding> HangRule::judge_wait(Places places, Time now) {
  next_wait_sample_ = now + duration_of(kWaitLimits * limit_ / 2);
  if (std::ranges::any_of(places, [](const auto& each) { return each.second.is_excused != 0; }))
    return {};
  Finding finding{Finding::Kind::kWait, 0, {}, {}};
  bool is_new = false;
  for (const auto& [number, rank] : ranks_) {
    const double seconds = seconds_between(rank.since, now);
    const RankPlace& place = places[number];
    // Nine limits suffice for further ranks: ranks reach a collective one after another.
    if (seconds < (kWaitLimits - 1) * limit_ || place.is_collective == 0) continue;
    // Without a stack, the rank may do something other than wait.
    if (!place.no_stack.empty()) continue;
    if (!may_spin(place) && main_is_busy(rank)) continue;
    is_new |= wait_reported_.emplace(number, rank.since).second;
    finding.waiting.push_back(number);
    finding.seconds = finding.seconds == 0 ? seconds : std::min(finding.seconds, seconds);
  }
  if (!is_new) return {};
  finding.places = std::move(places);
  return finding;
}

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
  return cat("no rank has moved for ", rounded_time(finding.seconds), ": ", join(parts, "; "),
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
