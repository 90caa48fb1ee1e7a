#include "launcher/observe/rules/straggler_cause.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/text.h"
#include "launcher/output/line_folder.h"

namespace hvd::launcher {
namespace {

using Growth = PressureRecord::Growth;
using Ranks = std::map<int, Growth>;
using Count = uint64_t (*)(const RankPressure&);

constexpr Count kCpu = [](const RankPressure& of) { return of.rank.usage.cpu_microseconds; };
constexpr Count kRunDelay = [](const RankPressure& of) {
  return of.rank.usage.run_delay_microseconds;
};
constexpr Count kMajorFaults = [](const RankPressure& of) { return of.rank.usage.major_faults; };
constexpr Count kThrottled = [](const RankPressure& of) { return of.rank.throttled_microseconds; };
constexpr Count kSteal = [](const RankPressure& of) { return of.host.steal_microseconds; };
constexpr Count kSwappedIn = [](const RankPressure& of) { return of.host.swapped_in; };
constexpr Count kRetransmits = [](const RankPressure& of) { return of.host.retransmits; };

uint64_t growth_of(const Growth& growth, Count count) {
  const uint64_t last = count(growth.last);
  return last - std::min(last, count(growth.first));
}

// A disturbance explains a late rank if it has taken this share of the rank's lateness.
constexpr double kShare = 0.3;
constexpr double kStealShare = 0.05;
constexpr double kBlockedShare = 0.3;
constexpr int kLeastBlocked = 3;
constexpr double kFaultsInStep = 1;
constexpr double kPagesInStep = 4;
constexpr double kResentInStep = 0.2;
constexpr double kLeastResent = 10;

// Compares the late ranks with the other ranks of the job.
struct Compared {
  const StragglerFinding& finding;
  const Ranks& ranks;

  bool is_late(int rank) const {
    return finding.ranks.empty() || std::ranges::count(finding.ranks, rank) > 0;
  }
  // Returns the time of a step, including the waits of the other ranks.
  double step_seconds() const { return finding.step_seconds + finding.late_seconds; }
  // Returns the median per step over the late ranks, or over the other ranks.
  double in_step(Count count, bool of_late) const {
    std::vector<double> values;
    for (const auto& [rank, each] : ranks) {
      if (is_late(rank) != of_late || each.seconds <= 0) continue;
      values.push_back(static_cast<double>(growth_of(each, count)) * step_seconds() / each.seconds);
    }
    return median(std::move(values));
  }
  // most(): the maximum over the late ranks. of_others(): the median over the other ranks.
  double most(double (*share)(const Growth&)) const {
    double found = 0;
    for (const auto& [rank, each] : ranks) {
      if (is_late(rank)) found = std::max(found, share(each));
    }
    return found;
  }
  double of_others(double (*share)(const Growth&)) const {
    std::vector<double> values;
    for (const auto& [rank, each] : ranks) {
      if (!is_late(rank)) values.push_back(share(each));
    }
    return median(std::move(values));
  }
  // Returns the median over the late ranks minus the median over the other ranks, per step.
  double more_in_step(Count count) const { return in_step(count, true) - in_step(count, false); }
};

double steal_share(const Growth& growth) {
  if (growth.seconds <= 0) return 0;
  return 1e-6 * static_cast<double>(growth_of(growth, kSteal)) /
         (growth.seconds * static_cast<double>(std::max<uint64_t>(growth.last.host.processors, 1)));
}

double blocked_share(const Growth& growth) {
  return growth.looks == 0 ? 0 : static_cast<double>(growth.blocked) / growth.looks;
}

std::string milliseconds(double seconds) {
  const double value = 1000 * seconds;
  return cat(value < 10 ? std::round(10 * value) / 10 : std::round(value), " ms");
}

std::string duration(double seconds) {
  if (seconds >= 10) return cat(std::lround(seconds), " s");
  if (seconds >= 1) return cat(std::round(10 * seconds) / 10, " s");
  const double value = 1000 * seconds;
  return cat(value < 10 ? std::round(10 * value) / 10 : std::round(value), " ms");
}

// Returns the share of the wait in the whole time, wait plus `rest`.
std::string percent(double wait, double rest) {
  return cat(wait > 0 ? std::lround(100 * wait / (wait + rest)) : 0, " %");
}

std::string_view ordinal_ending(uint64_t number) {
  if (number % 100 / 10 == 1) return "th";
  return number % 10 == 1 ? "st" : number % 10 == 2 ? "nd" : number % 10 == 3 ? "rd" : "th";
}

std::string described(const StragglerFinding& finding, const std::vector<std::string>& host_of) {
  const std::string late = duration(finding.late_seconds);
  const std::string share = percent(finding.late_seconds, finding.step_seconds);
  const std::string steps = cat(finding.late_steps, " of ", StepWindow::kSteps, " steps");
  switch (finding.kind) {
    case StragglerKind::kHost:
      return cat(ranks_on_hosts(finding.ranks, host_of), ", all ranks of ",
                 finding.is_one_of_two ? "the later of two hosts" : "this host", ", are ", late,
                 " late in ", steps, ", ", share, " of a step");
    case StragglerKind::kConstant:
      return cat(ranks_on_hosts(finding.ranks, host_of),
                 finding.is_one_of_two ? ", the later of two, is " : " is ", late, " late in ",
                 steps, ", ", share, " of a step");
    case StragglerKind::kPeriodic:
      return cat(
          ranks_on_hosts(finding.ranks, host_of), " is ", late, " late in every ", finding.period,
          ordinal_ending(finding.period), " step, as by a checkpoint or a log; the others wait ",
          percent(finding.late_seconds, static_cast<double>(finding.period) * finding.step_seconds),
          " of the time");
    case StragglerKind::kMoving:
      return cat("in ", steps, " a rank is late, each time another one, by ", late, ", ", share,
                 " of a step, as by uneven data or a garbage collector");
    case StragglerKind::kEverybody:
      return cat("all ranks are slower than before: a step takes ", late, " longer than ",
                 duration(finding.step_seconds));
  }
  return "";
}

// A line needs this number of samples, and this share of them, to explain a late rank.
constexpr int kLeastSamples = 3;
constexpr double kLeastShare = 0.4;

}  // namespace

void PressureRecord::take(const Pressures& now, double at_seconds) {
  if (looks_++ == 0) {
    first_ = now;
    began_ = at_seconds;
  }
  last_ = now;
  ended_ = at_seconds;
  for (const auto& [rank, each] : now) blocked_[rank] += each.rank.is_on_disk;
}

std::map<int, PressureRecord::Growth> PressureRecord::growth() const {
  std::map<int, Growth> all;
  for (const auto& [rank, last] : last_) {
    const auto first = first_.find(rank);
    if (first == first_.end()) continue;
    all.emplace(rank, Growth{ended_ - began_, first->second, last, looks_, blocked_.at(rank)});
  }
  return all;
}

namespace {

using Found = std::optional<StragglerCause>;

Found taken_processors(const Compared& compared) {
  const double late = compared.finding.late_seconds;
  const std::string its = compared.finding.ranks.size() == 1 ? "its" : "their";
  const double throttled = 1e-6 * compared.more_in_step(kThrottled);
  if (throttled > kShare * late) {
    return StragglerCause{
        cat("a CPU quota stops its cgroup for ", milliseconds(throttled), " of each step"), true};
  }
  const double stolen = compared.most(steal_share);
  if (stolen - compared.of_others(steal_share) > kStealShare) {
    return StragglerCause{cat("the hypervisor takes ", std::lround(100 * stolen),
                              " % of the host's processors (steal)"),
                          true};
  }
  const double delay = 1e-6 * compared.more_in_step(kRunDelay);
  if (delay <= kShare * late) return {};
  if (1e-6 * compared.more_in_step(kCpu) >= delay) {
    return StragglerCause{
        cat(its, " own threads wait for each other's processors for ", milliseconds(delay),
            " of each step (run delay): more threads than processors"),
        false};
  }
  return StragglerCause{cat(its, " threads wait for a processor for ", milliseconds(delay),
                            " of each step (run delay): other processes use the host"),
                        true};
}

Found page_faults(const Compared& compared) {
  const double faults = compared.more_in_step(kMajorFaults);
  if (faults <= kFaultsInStep) return {};
  const bool swaps = compared.more_in_step(kSwappedIn) > kPagesInStep ||
                     compared.in_step(kSwappedIn, true) > kPagesInStep;
  return StragglerCause{
      cat(std::lround(faults), faults < 1.5 ? " page fault" : " page faults",
          " in each step read from ",
          swaps ? "swap: the host has too little memory" : "storage (major faults)"),
      true};
}

Found blocked_process(const Compared& compared) {
  for (const auto& [rank, each] : compared.ranks) {
    if (!compared.is_late(rank) || compared.finding.ranks.empty()) continue;
    if (each.blocked < kLeastBlocked ||
        blocked_share(each) - compared.of_others(blocked_share) <= kBlockedShare)
      continue;
    return StragglerCause{cat("its process waits for storage or a network file system, in ",
                              each.blocked, " of ", each.looks, " looks (uninterruptible sleep)"),
                          true};
  }
  return {};
}

Found resent_segments(const Compared& compared) {
  if (compared.ranks.empty()) return {};
  const double resent = compared.in_step(kRetransmits, true);
  const double steps = compared.ranks.begin()->second.seconds / compared.step_seconds();
  if (resent <= kResentInStep || resent * steps <= kLeastResent) return {};
  if (!compared.finding.ranks.empty() && compared.more_in_step(kRetransmits) <= kResentInStep)
    return {};
  const std::string its = compared.finding.ranks.size() == 1 ? "its" : "their";
  return StragglerCause{cat(its, " host sends ", std::lround(resent * steps),
                            " TCP segments again in ", std::lround(steps), " steps (retransmits)"),
                        true};
}

// Detects a lack of processors. Ignores the other ranks: they may wait as long for a processor, but at times when this
// delays no rank.
Found contended_processors(const Compared& compared) {
  const double delay = 1e-6 * compared.in_step(kRunDelay, true);
  if (delay <= kShare * compared.finding.late_seconds) return {};
  return StragglerCause{
      cat("the program itself, or other processes: the ranks of its host wait for "
          "a processor for ",
          milliseconds(delay), " of each step (run delay)"),
      false};
}

}  // namespace

StragglerCause cause_of(const StragglerFinding& finding, const Ranks& ranks) {
  const Compared compared{finding, ranks};
  for (const auto judge :
       {taken_processors, page_faults, blocked_process, resent_segments, contended_processors}) {
    if (Found cause = judge(compared)) return *std::move(cause);
  }
  return {};
}

std::string straggler_sentence(const StragglerFinding& finding, const std::string& cause,
                               const LateLine& line, const std::vector<std::string>& host_of) {
  std::string text = described(finding, host_of);
  if (!cause.empty()) text += cat("; cause: ", cause);
  if (!line.line.empty())
    text += cat(", in ", line.samples, " of ", line.of, " samples in ", printable(line.line));
  return text;
}

void LatePlaces::take(int rank, const RankPlace& place) {
  if (place.line.empty()) return;
  Rank& of = ranks_[rank];
  ++of.samples;
  if (place.is_collective == 0) ++of.lines[cat(place.function, ", ", place.line)];
}

LateLine LatePlaces::line_of(const std::vector<int>& ranks) const {
  LateLine most;
  for (const int rank : ranks) {
    const auto found = ranks_.find(rank);
    if (found == ranks_.end()) continue;
    for (const auto& [line, samples] : found->second.lines) {
      if (samples > most.samples) most = {line, samples, found->second.samples};
    }
  }
  const bool stands_out = most.samples >= kLeastSamples && most.samples >= kLeastShare * most.of;
  return stands_out ? most : LateLine{};
}

}  // namespace hvd::launcher
