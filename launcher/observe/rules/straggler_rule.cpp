#include "launcher/observe/rules/straggler_rule.h"

#include <cmath>
#include <utility>

namespace hvd::launcher {
namespace {

constexpr size_t kSteps = StepWindow::kSteps;
// The first steps are skipped: programs compile, fill caches and choose kernels in them.
constexpr uint64_t kFirstSteps = 100;
// A window whose median step, with waits, is shorter is not judged.
constexpr double kShortestStep = 0.02;
constexpr double kLateShare = 0.1;  // share of a step
constexpr double kDeviations = 5;
// The standard deviation of a normal distribution divided by its median absolute deviation.
constexpr double kScale = 1.4826;
// A smaller lateness is ignored, because the kernel's scheduler alone can cause it.
constexpr double kLeastSeconds = 0.5e-3;
constexpr int kWindows = 2, kClearWindows = 3;
// The number of windows for a finding that names no rank (moving, everybody).
constexpr int kWindowsOfAll = 4;
// A peak: late by this share of a step while all other ranks are in time.
constexpr double kPeakShare = 0.5;
constexpr size_t kLeastPeaks = 3, kMostPeaks = 8;
// The minimum spread for a finding that names no rank, as a share of a step without waits. Noise alone makes one of
// many ranks late by half a step.
constexpr double kMovingShare = 0.75;
constexpr size_t kUsualWindows = 8, kLeastUsual = 4;
constexpr int kMostEverybody = 3;

double scaled_deviation(const std::vector<double>& values, double center) {
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::abs(value - center));
  return kScale * median(std::move(deviations));
}

double scaled_deviation(const std::vector<double>& values) {
  return scaled_deviation(values, median(values));
}

}  // namespace

// A window in seconds. Ranks are identified by their index in the window.
struct StragglerRule::Numbers {
  explicit Numbers(const StepWindow& window);
  size_t size() const { return late.size(); }

  // Counts the steps in which all of these ranks are later than the median rank by kLateShare of a step. `others`: the
  // median lateness of the other ranks.
  int late_steps(const std::vector<size_t>& of, double others) const;
  // Returns how much later the rank is than the median rank or, with two ranks, than the less late rank.
  double peak(size_t rank, size_t step) const;

  const StepWindow& window;
  std::vector<std::vector<double>> late;  // indexed by rank and step
  std::vector<double> medians;            // medians of `late`, by rank
  std::vector<double> waits;              // medians of wait_and_transfer(), by rank
  std::vector<double> reference;          // lateness of the median rank, by step
  double center = 0;                      // the median of `medians`
  double step = 0;                        // the median duration without waits
  double whole = 0;                       // the median duration
};

StragglerRule::Numbers::Numbers(const StepWindow& all) : window(all) {
  constexpr double kMicro = 1e-6;
  std::vector<double> durations, longest(kSteps, 0);  // `durations`: without waits, by rank
  std::vector<double> all_durations;
  for (const StepWindow::Rank& rank : window.ranks) {
    std::vector<double> waited, own;
    for (size_t i = 0; i < kSteps; ++i) {
      const StepSample& step = rank.steps[i];
      own.push_back(kMicro * (step.microseconds - std::min(step.waited, step.microseconds)));
      waited.push_back(kMicro * static_cast<double>(step.wait_and_transfer()));
      all_durations.push_back(kMicro * step.microseconds);
      longest[i] = std::max(longest[i], waited.back());
    }
    waits.push_back(median(waited));
    durations.push_back(median(std::move(own)));
    late.push_back(std::move(waited));
  }
  for (std::vector<double>& of_rank : late) {
    for (size_t i = 0; i < kSteps; ++i) of_rank[i] = longest[i] - of_rank[i];
    medians.push_back(median(of_rank));
  }
  for (size_t i = 0; i < kSteps; ++i) {
    std::vector<double> of_step;
    for (const std::vector<double>& of_rank : late) of_step.push_back(of_rank[i]);
    // With two ranks, the reference is the less late rank.
    reference.push_back(size() == 2 ? std::min(of_step[0], of_step[1]) : median(of_step));
  }
  center = median(medians);
  whole = median(std::move(all_durations));
  // Use the lower half, because half of the ranks may be late.
  const auto middle = durations.begin() + static_cast<ptrdiff_t>((size() - 1) / 2);
  std::ranges::nth_element(durations, middle);
  step = *middle;
}

int StragglerRule::Numbers::late_steps(const std::vector<size_t>& of, double others) const {
  int steps = 0;
  for (size_t i = 0; i < kSteps; ++i) {
    const bool is_late = std::ranges::all_of(of, [&](size_t rank) {
      // The median rank may be one of the late ranks.
      const double base = size() == 2 ? reference[i] : std::min(reference[i], others);
      return late[rank][i] - base > kLateShare * step;
    });
    steps += is_late ? 1 : 0;
  }
  return steps;
}

double StragglerRule::Numbers::peak(size_t rank, size_t i) const {
  return late[rank][i] - reference[i];
}

bool StragglerRule::Episode::next(bool is_there, int needed) {
  windows = is_there ? windows + 1 : 0;
  clear = is_there ? 0 : clear + 1;
  if (clear >= kClearWindows) is_open = false;
  return windows >= needed && !std::exchange(is_open, is_open || windows >= needed);
}

namespace {

// The indexes of ranks, by host.
using HostRanks = std::map<int, std::vector<size_t>>;

// Returns which of two values is later: 0 for `one`, 1 for `other`, -1 for neither. `noise`: the noise of their
// difference.
int later_of_two(double one, double other, double step, double noise) {
  const double least = std::max({kLateShare * step, kDeviations * noise, kLeastSeconds});
  if (one - other > least) return 0;
  return other - one > least ? 1 : -1;
}

// Compares two hosts as a whole: in a job of two hosts, half of the ranks may be late.
std::set<int> late_host_of_two(const StragglerRule::Numbers& numbers, const HostRanks& by_host) {
  std::set<int> late;
  if (by_host.size() != 2) return late;
  std::vector<double> medians[2];
  size_t host = 0;
  for (const auto& [number, of] : by_host) {
    for (const size_t rank : of) medians[host].push_back(numbers.medians[rank]);
    ++host;
  }
  if (medians[0].size() < 2 || medians[1].size() < 2) return late;
  const double noise = std::max(scaled_deviation(medians[0]), scaled_deviation(medians[1]));
  const int later = later_of_two(median(medians[0]), median(medians[1]), numbers.step, noise);
  if (later < 0) return late;
  const auto& of = later == 0 ? by_host.begin()->second : by_host.rbegin()->second;
  // If some ranks of the host are in time, the ranks are late, and not the host.
  const double other = median(medians[1 - later]);
  const double least =
      std::max({kLateShare * numbers.step, kDeviations * noise, kLeastSeconds}) / 2;
  if (std::ranges::any_of(of, [&](size_t rank) { return numbers.medians[rank] - other < least; }))
    return late;
  for (const size_t rank : of) late.insert(static_cast<int>(rank));
  return late;
}

}  // namespace

// Returns the indexes of the ranks that are late in this window.
std::set<int> StragglerRule::late_ranks(const Numbers& numbers) const {
  std::set<int> late;
  const size_t size = numbers.size();
  const auto& ranks = numbers.window.ranks;
  if (size == 2) {
    std::vector<double> differences;
    for (size_t i = 0; i < kSteps; ++i)
      differences.push_back(numbers.late[0][i] - numbers.late[1][i]);
    // The standard error of the median of a normal distribution.
    const double noise = 1.2533 * scaled_deviation(differences) / std::sqrt(double{kSteps});
    const int later = later_of_two(median(differences), 0, numbers.step, noise);
    if (later >= 0) late.insert(later);
    return late;
  }
  std::map<int, std::vector<size_t>> by_host;
  for (size_t rank = 0; rank < size; ++rank) by_host[ranks[rank].host].push_back(rank);
  late = late_host_of_two(numbers, by_host);
  if (!late.empty()) return late;
  std::vector<double> shares;  // each rank's excess as a share of the threshold
  for (size_t rank = 0; rank < size; ++rank) {
    // With few ranks, the late rank would itself raise the reference.
    std::vector<double> others = numbers.medians;
    others.erase(others.begin() + static_cast<ptrdiff_t>(rank));
    const double center = median(others);
    const double least = std::max(
        {kLateShare * numbers.step, kDeviations * scaled_deviation(others, center), kLeastSeconds});
    shares.push_back((numbers.medians[rank] - center) / least);
    if (shares.back() > 1) late.insert(static_cast<int>(rank));
  }
  // A host is late if most of its ranks are late, and none is in time.
  for (const auto& [host, of] : by_host) {
    const auto count = std::ranges::count_if(of, [&](size_t rank) { return shares[rank] > 1; });
    const bool is_whole = std::ranges::all_of(of, [&](size_t rank) { return shares[rank] > 0.5; });
    if (!is_whole || 2 * static_cast<size_t>(count) <= of.size()) continue;
    for (const size_t rank : of) late.insert(static_cast<int>(rank));
  }
  return late;
}

std::vector<StragglerFinding> StragglerRule::judge(const StepWindow& window) {
  std::vector<StragglerFinding> findings;
  if (window.ranks.size() < 2) return findings;
  const Numbers numbers(window);
  if (window.first != next_) peaks_.clear();
  next_ = window.first + kSteps;
  is_suspicious_ = false;
  suspects_.clear();
  if (window.first >= kFirstSteps && numbers.whole >= kShortestStep) {
    judge_constant(numbers, findings);
    judge_periodic(numbers, findings);
    judge_moving(numbers, findings);
    judge_everybody(numbers, findings);
  }
  latest_.clear();
  for (size_t rank = 0; rank < numbers.size(); ++rank) {
    const StepWindow::Rank& of = window.ranks[rank];
    latest_.push_back(
        {of.rank, of.host, numbers.medians[rank], numbers.waits[rank], episodes_[of.rank].is_open});
  }
  return findings;
}

namespace {

// Returns the median lateness of the ranks that are not stragglers.
double lateness_of_others(const StragglerRule::Numbers& numbers, const std::set<int>& late) {
  // If at least half of the ranks are late, the median of all ranks would be the lateness of a late rank.
  if (2 * late.size() < numbers.size()) return numbers.center;
  std::vector<double> rest;
  for (size_t index = 0; index < numbers.size(); ++index) {
    if (!late.contains(static_cast<int>(index))) rest.push_back(numbers.medians[index]);
  }
  return median(std::move(rest));
}

// `late`: indexes of all late ranks; `of`: indexes of the ranks in the finding.
StragglerFinding constant_finding(const StragglerRule::Numbers& numbers, const std::set<int>& late,
                                  StragglerKind kind, const std::vector<size_t>& of) {
  const auto& ranks = numbers.window.ranks;
  StragglerFinding finding{.kind = kind, .step_seconds = numbers.step};
  const double others = lateness_of_others(numbers, late);
  std::vector<double> excess;
  for (const size_t index : of) {
    finding.ranks.push_back(ranks[index].rank);
    excess.push_back(numbers.medians[index] - others);
  }
  finding.late_seconds = median(std::move(excess));
  finding.late_steps = numbers.late_steps(of, others);
  return finding;
}

}  // namespace

void StragglerRule::judge_constant(const Numbers& numbers,
                                   std::vector<StragglerFinding>& findings) {
  const auto& ranks = numbers.window.ranks;
  std::set<int> late = late_ranks(numbers);
  // A rank must be late in most steps: long delays of other ranks also change its median.
  std::erase_if(late, [&, others = lateness_of_others(numbers, late)](int index) {
    return 2 * numbers.late_steps({static_cast<size_t>(index)}, others) < static_cast<int>(kSteps);
  });
  std::map<int, std::vector<size_t>> begun;  // ranks by host
  std::map<int, size_t> on_host;
  for (size_t index = 0; index < ranks.size(); ++index) {
    ++on_host[ranks[index].host];
    const bool is_late = late.contains(static_cast<int>(index));
    Episode& episode = episodes_[ranks[index].rank];
    if (episode.next(is_late, kWindows)) begun[ranks[index].host].push_back(index);
    if (is_late && !episode.is_open) suspects_.insert(ranks[index].rank);
  }
  is_suspicious_ = is_suspicious_ || !suspects_.empty();
  const bool is_half = 2 * late.size() >= ranks.size();
  for (const auto& [host, of] : begun) {
    const bool is_whole = of.size() == on_host[host] && of.size() > 1 && on_host.size() > 1;
    if (is_whole) {
      findings.push_back(constant_finding(numbers, late, StragglerKind::kHost, of));
      findings.back().is_one_of_two = is_half && (ranks.size() == 2 || on_host.size() == 2);
      continue;
    }
    for (const size_t index : of) {
      findings.push_back(constant_finding(numbers, late, StragglerKind::kConstant, {index}));
      findings.back().is_one_of_two = is_half && ranks.size() == 2;
    }
  }
}

void StragglerRule::judge_periodic(const Numbers& numbers,
                                   std::vector<StragglerFinding>& findings) {
  const double least = std::max(kPeakShare * numbers.step, 4 * kLeastSeconds);
  double late_of_all = 0;
  std::vector<StragglerFinding> found;
  for (size_t index = 0; index < numbers.size(); ++index) {
    const int rank = numbers.window.ranks[index].rank;
    std::deque<uint64_t>& peaks = peaks_[rank];
    double late = 0;
    int count = 0;
    for (size_t i = 0; i < kSteps; ++i) {
      if (numbers.peak(index, i) < least) continue;
      peaks.push_back(numbers.window.first + i);
      late += numbers.peak(index, i);
      ++count;
    }
    late_of_all += late;
    while (peaks.size() > kMostPeaks) peaks.pop_front();
    if (peaks.size() < kLeastPeaks || count == 0 || reported_periodic_.contains(rank)) continue;
    if (episodes_[rank].is_open || late < kLateShare * numbers.step * kSteps) continue;
    const uint64_t period = peaks[1] - peaks[0];
    bool is_regular = period > 1 && peaks.back() - peaks.front() + period > kSteps;
    for (size_t i = 1; i < peaks.size(); ++i) is_regular &= peaks[i] - peaks[i - 1] == period;
    if (!is_regular) continue;
    found.push_back({.kind = StragglerKind::kPeriodic,
                     .ranks = {rank},
                     .late_seconds = late / count,
                     .step_seconds = numbers.step,
                     .late_steps = count,
                     .period = period});
  }
  for (StragglerFinding& each : found) {
    // If every rank is late in turn, no rank is a straggler.
    if (2 * each.late_seconds * each.late_steps < late_of_all) continue;
    reported_periodic_.insert(each.ranks.front());
    findings.push_back(std::move(each));
  }
}

void StragglerRule::judge_moving(const Numbers& numbers, std::vector<StragglerFinding>& findings) {
  const size_t size = numbers.size();
  std::vector<double> spreads;
  std::vector<int> last(size);
  for (size_t i = 0; i < kSteps; ++i) {
    size_t latest = 0;
    for (size_t rank = 1; rank < size; ++rank) {
      if (numbers.late[rank][i] > numbers.late[latest][i]) latest = rank;
    }
    spreads.push_back(numbers.peak(latest, i));
    ++last[latest];
  }
  const double spread = median(spreads);
  const bool is_moving = size > 2 && spread > 4 * kLeastSeconds &&
                         spread > kMovingShare * numbers.step &&
                         2 * std::ranges::max(last) <= static_cast<int>(kSteps);
  if (!moving_.next(is_moving, kWindowsOfAll)) return;
  const auto late =
      std::ranges::count_if(spreads, [&](double each) { return each > kLateShare * numbers.step; });
  findings.push_back({.kind = StragglerKind::kMoving,
                      .ranks = {},
                      .late_seconds = spread,
                      .step_seconds = numbers.step,
                      .late_steps = static_cast<int>(late)});
}

// Reports that the time of a step without waits has grown on all ranks.
void StragglerRule::judge_everybody(const Numbers& numbers,
                                    std::vector<StragglerFinding>& findings) {
  std::vector<double> own;
  std::map<uint32_t, int> ends;
  for (const StepWindow::Rank& rank : numbers.window.ranks) {
    std::vector<double> of_rank;
    for (const StepSample& step : rank.steps) {
      of_rank.push_back(1e-6 * (step.microseconds - std::min(step.waited, step.microseconds)));
      ++ends[step.ended_by];
    }
    own.push_back(median(std::move(of_rank)));
  }
  const double now = median(std::move(own));
  const uint32_t phase =
      std::ranges::max_element(ends, {}, [](const auto& end) { return end.second; })->first;
  // If another operation ends most steps, the ranks run another part of the program, such as a validation.
  if (std::exchange(phase_, phase) != phase) {
    usual_.clear();
    everybody_ = {};
  }
  const std::vector<double> before(usual_.begin(), usual_.end());
  const double usual = median(before);
  const double least =
      std::max({kLateShare * usual, kDeviations * scaled_deviation(before), kLeastSeconds});
  const bool is_slower = before.size() >= kLeastUsual && now - usual > least;
  const bool is_quiet =
      std::ranges::none_of(episodes_, [](const auto& each) { return each.second.windows > 0; });
  if (everybody_.next(is_slower && is_quiet, kWindowsOfAll)) {
    usual_.assign(kLeastUsual, now);
    if (++reports_of_all_ > kMostEverybody) return;
    findings.push_back({.kind = StragglerKind::kEverybody,
                        .ranks = {},
                        .late_seconds = now - usual,
                        .step_seconds = usual,
                        .late_steps = static_cast<int>(kSteps)});
    return;
  }
  if (is_slower) {
    is_suspicious_ = is_suspicious_ || (is_quiet && !everybody_.is_open);
    return;
  }
  usual_.push_back(now);
  if (usual_.size() > kUsualWindows) usual_.pop_front();
}

}  // namespace hvd::launcher
