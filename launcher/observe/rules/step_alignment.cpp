#include "launcher/observe/rules/step_alignment.h"

#include <algorithm>
#include <optional>

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
  // Steps were missed. If `oldest` were greater than `ended`, a rank would have restarted.
  if (next_ < oldest && oldest <= ended)
    next_ = std::max(oldest, ended - std::min(ended, StepWindow::kSteps));
  for (; next_ + StepWindow::kSteps <= ended; next_ += StepWindow::kSteps) {
    if (auto window = window_at(next_, ranks)) windows.push_back(*std::move(window));
  }
  left_ = ended == 0 ? 0 : next_ + StepWindow::kSteps - ended;
  return windows;
}

}  // namespace hvd::launcher
