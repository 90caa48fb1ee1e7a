#include "launcher/observe/rules/step_alignment.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.h"

namespace hvd::launcher {
namespace {

// Returns the window of these steps; nothing if a rank no longer has them, or if the ranks had different steps.
std::optional<StepWindow> window_at(uint64_t first, const std::map<int, StepAlignment::Rank>& all) {
  StepWindow window{first, {}};
  for (const auto& [rank, each] : all) {
    const std::vector<StepSample>& last = each.steps.last;
    const uint64_t oldest = each.steps.ended - last.size();
    if (first < oldest || first + StepWindow::kSteps > each.steps.ended) return {};
    const auto begin = last.begin() + static_cast<ptrdiff_t>(first - oldest);
    window.ranks.push_back({rank, each.host, {begin, begin + StepWindow::kSteps}});
    const bool is_alike =
        std::ranges::equal(window.ranks.front().steps, window.ranks.back().steps,
                           [](const auto& one, const auto& other) {
                             return one.ended_by == other.ended_by && one.call == other.call;
                           });
    if (!is_alike) return {};
  }
  return window;
}

constexpr double kMicro = 1e-6;
// A summary needs this number of windows of steps. Smaller shares of waits and shorter steps are irrelevant.
constexpr uint64_t kLeastWindows = 4;
constexpr double kLeastWaits = 0.05;
constexpr double kLeastStepSeconds = 1e-3;
// A step has a last rank only if this rank was late by more than this share of the step.
constexpr double kLastShare = 0.05;
// A rank is named if it was last in this share of the steps, and kUnfair times as often as the average rank. An
// operation is named if it had this share of the waits.
constexpr double kNamedShare = 0.3, kUnfair = 1.5;
// Further names are not counted, because a program may create names without end.
constexpr size_t kMostNames = 1000;

}  // namespace

std::vector<StepWindow> StepAlignment::take(const std::map<int, Rank>& ranks) {
  std::vector<StepWindow> windows;
  left_ = 0;
  has_moved_ = false;
  if (ranks.empty()) return windows;
  uint64_t ended = UINT64_MAX, oldest = 0;
  for (const auto& [rank, each] : ranks) {
    // Ranks with another world size belong to another world.
    if (each.steps.world_size != static_cast<int>(ranks.size())) return windows;
    ended = std::min(ended, each.steps.ended);
    oldest = std::max(oldest, each.steps.ended - each.steps.last.size());
  }
  has_moved_ = ended != ended_;
  if (ended < ended_) next_ = 0;  // the ranks have restarted
  ended_ = ended;
  // Skip missed steps. If `oldest` is greater than `ended`, a rank has restarted.
  if (next_ < oldest && oldest <= ended)
    next_ = std::max(oldest, ended - std::min(ended, StepWindow::kSteps));
  for (; next_ + StepWindow::kSteps <= ended; next_ += StepWindow::kSteps) {
    if (auto window = window_at(next_, ranks)) windows.push_back(*std::move(window));
  }
  left_ = ended == 0 ? 0 : next_ + StepWindow::kSteps - ended;
  return windows;
}

void WaitTally::take(const std::map<int, StepAlignment::Rank>& ranks) {
  for (const auto& [number, each] : ranks) {
    Rank& rank = ranks_[number];
    if (each.steps.total < rank.total) {  // the rank has restarted
      rank.total_before += rank.total;
      rank.waited_before += rank.waited;
    }
    rank.total = each.steps.total;
    rank.waited = each.steps.total_waited;
    const std::string& name = each.steps.awaited;
    if (!name.empty() && (awaited_.size() < kMostNames || awaited_.contains(name)))
      awaited_[name] += each.steps.awaited_microseconds;
  }
}

void WaitTally::take(const StepWindow& window) {
  // Assume that unobserved steps were equal to the steps of this window.
  const uint64_t since = window.first >= next_ ? window.first - next_ : 0;
  const double weight = 1 + static_cast<double>(since) / StepWindow::kSteps;
  next_ = window.first + StepWindow::kSteps;
  ++windows_;
  ++named_windows_;
  for (size_t i = 0; i < StepWindow::kSteps; ++i) {
    uint64_t longest = 0;
    const StepWindow::Rank* last = &window.ranks.front();
    for (const StepWindow::Rank& rank : window.ranks) {
      longest = std::max(longest, rank.steps[i].wait_and_transfer());
      if (rank.steps[i].wait_and_transfer() < last->steps[i].wait_and_transfer()) last = &rank;
    }
    for (const StepWindow::Rank& rank : window.ranks) {
      const uint64_t own = rank.steps[i].wait_and_transfer();
      ranks_[rank.rank].late += weight * kMicro * static_cast<double>(longest - own);
      // The last rank waits only for the messages, and not for other ranks.
      waited_for_ranks_ += own - last->steps[i].wait_and_transfer();
      seen_ += rank.steps[i].microseconds;
    }
    const auto late = static_cast<double>(longest - last->steps[i].wait_and_transfer());
    if (late > kLastShare * last->steps[i].microseconds) ++ranks_[last->rank].times_last;
  }
}

std::map<int, RankWaits> WaitTally::waits() const {
  std::map<int, RankWaits> waits;
  for (const auto& [number, rank] : ranks_) {
    waits[number] = {
        .waited_seconds = kMicro * static_cast<double>(rank.waited_before + rank.waited),
        .late_seconds = rank.late};
  }
  return waits;
}

std::string WaitTally::summary(const std::vector<std::string>& host_of) const {
  double total = 0;
  uint64_t times = 0;
  const std::pair<const int, Rank>* most = nullptr;
  for (const auto& each : ranks_) {
    const Rank& rank = each.second;
    total += static_cast<double>(rank.total_before + rank.total);
    times += rank.times_last;
    if (most == nullptr || rank.times_last > most->second.times_last) most = &each;
  }
  const double seen = static_cast<double>(named_windows_ * StepWindow::kSteps);
  const double share =
      static_cast<double>(waited_for_ranks_) / static_cast<double>(std::max<uint64_t>(seen_, 1));
  if (windows_ < kLeastWindows || share < kLeastWaits) return {};
  const double steps = static_cast<double>(std::max<uint64_t>(next_, 1));
  const double seconds = kMicro * total / (static_cast<double>(ranks_.size()) * steps);
  if (seconds < kLeastStepSeconds) return {};
  std::string text =
      cat("ranks waited ", std::lround(100 * share), " % of the time for other ranks");
  if (times == 0 || static_cast<double>(most->second.times_last) < kNamedShare * seen) return text;
  // With few ranks, each rank is last in a large share of the steps.
  const double fair = static_cast<double>(times) / static_cast<double>(ranks_.size());
  if (static_cast<double>(most->second.times_last) < kUnfair * fair) return text;
  const auto rank = static_cast<size_t>(most->first);
  text = cat("ranks waited ", std::lround(100 * share), " % of the time, most often for rank ",
             most->first);
  if (rank < host_of.size()) text += cat(" (", host_of[rank], ")");
  const auto name =
      std::ranges::max_element(awaited_, {}, [](const auto& each) { return each.second; });
  if (name != awaited_.end()) text += cat(", in ", printable(name->first));
  return text;
}

}  // namespace hvd::launcher
