// Detects late ranks of a running job (--on-straggler). Once per window of steps, queries the agents for the last
// training steps of their ranks. While a rank is suspected, also queries them for disturbances. Queries seldom while no
// step ends. Begins when a rank calls hvd.init(). Stores its results in RankRun::waits(), and sends the longest wait to
// each agent.

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "launcher/observe/parts.h"
#include "launcher/observe/rules/step_alignment.h"
#include "launcher/observe/rules/straggler_cause.h"
#include "launcher/observe/rules/straggler_rule.h"

namespace hvd::launcher {
namespace {

// The pause between two looks, in seconds. If a window of steps takes less than a second, only a part of the windows is
// observed.
constexpr double kShortestPause = 1, kLongestPause = 60;
// The longest interval while no step ends.
constexpr double kLongestIdle = 15;
// The longest interval before the first step, for the first kLooksBefore looks: many ranks start slowly.
constexpr double kLongestBefore = 2;
constexpr int kLooksBefore = 150;
// The delay after the end of a window, because the agents' counters reach the end at different moments.
constexpr double kMargin = 0.05;
constexpr int kLooksAtCauses = 20, kLooksAtPressure = 5;
constexpr double kShortestLook = 0.1;
// py-spy needs about 15 ms to read a stack. A rank that is less late has by then moved on.
constexpr double kLeastForSamples = 0.02;

double now_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

enum class StragglerReaction : uint8_t { kWarn, kRestart, kOff };

class StragglerWatch : public JobPart {
 public:
  explicit StragglerWatch(PartLaunch& launch);

  void on(const JobEvent& event) override;
  // Prints the line for the end of the job.
  net::Task<void> end() override;

 private:
  net::Task<void> watch();
  std::vector<std::string> host_names() const;
  net::Task<void> pause(double seconds);
  std::vector<StepWindow> take(std::vector<HostAnswer> answers);
  void take_pressures(const std::vector<HostAnswer>& answers);
  net::Task<void> look();
  net::Task<void> look_at_causes();
  net::Task<void> look_at_place();
  // Returns the process number (in the table) of a rank of the current generation, or -1.
  int number_of(int rank) const;
  void forget_ranks();
  net::Task<void> report(StragglerFinding finding, std::vector<std::string> host_of);
  void react(const StragglerFinding& finding, bool is_of_host);
  double seconds_to_window() const;
  void show_waits();
  void show_longest_wait();

  PartLaunch& launch_;
  const StragglerReaction reaction_;
  bool has_begun_ = false;
  StepAlignment alignment_;
  StragglerRule rule_;
  WaitTally tally_;
  PressureRecord pressures_;
  LatePlaces places_;
  std::vector<std::string> known_names_;  // host names by rank, at the last look
  double step_seconds_ = 0;               // duration of a step with its waits
  double idle_ = 0;                       // seconds of the last pause without a step
  int looks_before_ = 0;                  // looks before the first step
  net::asio::steady_timer timer_;
};

std::optional<StragglerReaction> parse_straggler_reaction(std::string_view word) {
  constexpr std::array<std::string_view, 3> kWords = {"warn", "restart", "off"};
  const auto found = std::ranges::find(kWords, word);
  if (found == kWords.end()) return {};
  return static_cast<StragglerReaction>(found - kWords.begin());
}

StragglerWatch::StragglerWatch(PartLaunch& launch)
    : launch_(launch),
      reaction_(parse_straggler_reaction(launch.settings().end.on_straggler)
                    .value_or(StragglerReaction::kWarn)),
      timer_(launch.executor()) {}

void StragglerWatch::on(const JobEvent& event) {
  if (!std::holds_alternative<RankJoined>(event) || reaction_ == StragglerReaction::kOff) return;
  if (!std::exchange(has_begun_, true)) launch_.run(shared_from_this(), watch());
}

net::Task<void> StragglerWatch::watch() {
  while (!is_over_) {
    if (rule_.is_suspicious() && idle_ == 0)
      co_await look_at_causes();
    else
      co_await pause(seconds_to_window());
    if (!is_over_) co_await look();
  }
}

net::Task<void> StragglerWatch::end() {
  is_over_ = true;
  timer_.cancel();
  const std::string sentence = tally_.summary(host_names());
  if (!sentence.empty()) launch_.output().print(sentence);
  co_return;
}

net::Task<void> StragglerWatch::pause(double seconds) {
  timer_.expires_after(duration_of(seconds));
  co_await timer_.async_wait(net::use_tuple);
}

double StragglerWatch::seconds_to_window() const {
  if (idle_ > 0) return idle_;
  const double steps = static_cast<double>(std::max<size_t>(alignment_.left(), 1));
  return std::clamp(steps * step_seconds_ + kMargin, kShortestPause, kLongestPause);
}

// Returns host names, indexed by the ranks of the current generation.
std::vector<std::string> StragglerWatch::host_names() const {
  std::vector<std::string> names;
  for (const RankRun* run : launch_.hosts().members()) names.push_back(run->host().name());
  return names;
}

std::vector<StepWindow> StragglerWatch::take(std::vector<HostAnswer> answers) {
  std::map<int, StepAlignment::Rank> ranks;
  for (auto& [number, steps] : of_running_ranks(launch_.hosts(), answers, &HostSample::steps)) {
    const int rank = launch_.hosts().rank_of(number);
    if (rank >= 0) ranks[rank] = {launch_.hosts().rank(number).host().number(), std::move(steps)};
  }
  // A host that does not answer may be suspended: ignore the other answers too.
  if (ranks.size() != launch_.hosts().members().size()) ranks.clear();
  std::vector<StepWindow> windows = alignment_.take(ranks);
  const bool is_before = step_seconds_ == 0 && ++looks_before_ < kLooksBefore;
  idle_ = alignment_.has_moved()
              ? 0
              : std::clamp(2 * idle_, kShortestPause, is_before ? kLongestBefore : kLongestIdle);
  if (!ranks.empty() && !ranks.begin()->second.steps.last.empty()) {
    const std::vector<StepSample>& last = ranks.begin()->second.steps.last;
    step_seconds_ = 0;
    for (const StepSample& step : last)
      step_seconds_ += 1e-6 * step.microseconds / static_cast<double>(last.size());
    if (alignment_.has_moved()) tally_.take(ranks);
  }
  return windows;
}

net::Task<void> StragglerWatch::look() {
  show_longest_wait();
  std::vector<HostAnswer> answers = co_await launch_.inspector().sample(SampleGroup::kSteps);
  if (is_over_) co_return;
  const std::vector<StepWindow> windows = take(std::move(answers));
  const std::vector<std::string> host_of_rank = host_names();
  if (std::exchange(known_names_, host_of_rank) != host_of_rank) forget_ranks();
  std::vector<StragglerFinding> findings;
  for (const StepWindow& window : windows) {
    tally_.take(window);
    for (StragglerFinding& each : rule_.judge(window)) findings.push_back(std::move(each));
  }
  show_waits();
  if (!windows.empty()) show_longest_wait();
  for (StragglerFinding& finding : findings) {
    co_await report(std::move(finding), host_of_rank);
    if (is_over_) co_return;
  }
  if (rule_.is_suspicious() && findings.empty() && idle_ == 0) co_return;
  pressures_.clear();
  places_.clear();
}

// Reads the ranks' counters several times until the next window ends.
net::Task<void> StragglerWatch::look_at_causes() {
  const double seconds = std::max(seconds_to_window(), kShortestPause);
  const int looks =
      std::max(1, std::min(kLooksAtCauses, static_cast<int>(seconds / kShortestLook)));
  for (int i = 0; i <= looks; ++i) {
    // Not at each look: reading the states of all threads each time would delay the ranks.
    if (i == looks || i % std::max(1, looks / kLooksAtPressure) == 0) {
      const std::vector<HostAnswer> answers =
          co_await launch_.inspector().sample(SampleGroup::kMetrics | SampleGroup::kPressure);
      if (is_over_) co_return;
      take_pressures(answers);
    }
    if (i == looks) co_return;
    const double began = now_seconds();
    co_await look_at_place();
    if (is_over_) co_return;
    co_await pause(std::max(seconds / looks - (now_seconds() - began), 0.0));
    if (is_over_) co_return;
  }
}

void StragglerWatch::take_pressures(const std::vector<HostAnswer>& answers) {
  PressureRecord::Pressures pressures;
  for (const HostAnswer& answer : answers) {
    for (const HostMetrics& host : answer.sample.metrics) {
      for (const RankMetrics& each : host.ranks) {
        const int rank = each.pid == 0 ? -1 : launch_.hosts().rank_of(each.rank);
        if (rank >= 0) pressures[rank] = {each, host.pressure};
      }
    }
  }
  pressures_.take(pressures, now_seconds());
}

int StragglerWatch::number_of(int rank) const {
  const auto members = launch_.hosts().members();
  if (rank < 0 || rank >= std::ssize(members)) return -1;
  const RankRun& run = *members[static_cast<size_t>(rank)];
  return run.is_over() ? -1 : run.number();
}

// Requests the position of the latest of the suspected ranks.
net::Task<void> StragglerWatch::look_at_place() {
  const StragglerRule::Lateness* latest = nullptr;
  for (const StragglerRule::Lateness& each : rule_.latest()) {
    const bool is_meant = rule_.suspects().contains(each.rank) || each.is_straggler;
    if (is_meant && (latest == nullptr || each.late_seconds > latest->late_seconds)) latest = &each;
  }
  const bool can_sample = latest != nullptr && latest->late_seconds > kLeastForSamples;
  const int number = can_sample ? number_of(latest->rank) : -1;
  if (number < 0) co_return;
  const int rank = latest->rank;
  const double late = std::min(1e6 * latest->late_seconds, double{UINT32_MAX});
  const std::vector<RankPlace> places =
      co_await launch_.inspector().place_of_late(number, static_cast<uint32_t>(late));
  if (is_over_) co_return;
  for (const RankPlace& place : places) places_.take(rank, place);
}

void StragglerWatch::forget_ranks() {
  rule_ = {};
  tally_.forget_ranks();
  pressures_.clear();
  places_.clear();
}

// `host_of`: indexed by rank, as in the window of the finding.
net::Task<void> StragglerWatch::report(StragglerFinding finding, std::vector<std::string> host_of) {
  StragglerCause cause;
  const bool has_cause =
      finding.kind != StragglerKind::kPeriodic && finding.kind != StragglerKind::kMoving;
  if (has_cause) {
    // If two windows ended together, the causes have not been measured yet.
    if (!pressures_.is_whole()) co_await look_at_causes();
    if (is_over_ || host_names() != host_of) co_return;
    cause = cause_of(finding, pressures_.growth());
  }
  const bool is_own = finding.kind == StragglerKind::kEverybody && !cause.is_of_host;
  const std::string why =
      is_own ? "the network, the clocks of processors, or the program itself" : cause.text;
  if (launch_.is_ending()) co_return;
  launch_.output().print(straggler_sentence(
      finding, has_cause ? why : "",
      finding.ranks.empty() ? LateLine{} : places_.line_of(finding.ranks), host_of));
  if (reaction_ == StragglerReaction::kRestart) react(finding, cause.is_of_host);
}

// Replaces a slow host by a spare host.
void StragglerWatch::react(const StragglerFinding& finding, bool is_of_host) {
  if (finding.ranks.empty() || launch_.is_elastic()) return;
  // Keep the host if the program may give one of its ranks more work, or if it is one of two and no cause is known.
  const HostRun& host = launch_.hosts().rank(finding.ranks.front()).host();
  const bool is_whole = finding.ranks.size() == host.ranks().size();
  const bool is_constant = finding.kind == StragglerKind::kHost ||
                           (finding.kind == StragglerKind::kConstant && is_of_host && is_whole);
  if (!is_constant || (finding.is_one_of_two && !is_of_host)) return;
  if (!launch_.has_spare(host)) {
    return launch_.output().print(
        cat("host ", host.name(), " is slow, and no spare host can replace it"));
  }
  launch_.replace(host, cat("the job ends to start again without host ", host.name(),
                            ", which is slow (--on-straggler restart)"));
}

void StragglerWatch::show_waits() {
  std::map<int, RankWaits> waits = tally_.waits();
  for (const StragglerRule::Lateness& rank : rule_.latest()) {
    waits[rank.rank].is_straggler = rank.is_straggler;
    waits[rank.rank].late_now = rank.late_seconds;
  }
  for (RankRun& run : launch_.hosts().ranks()) {
    const auto found = waits.find(run.rank());
    run.set_waits(found == waits.end() ? std::nullopt : std::optional(found->second));
  }
}

// Sends the longest wait of any rank to the agents. They compute from it whether their ranks are late.
void StragglerWatch::show_longest_wait() {
  double longest = 0;
  for (const StragglerRule::Lateness& rank : rule_.latest())
    longest = std::max(longest, rank.waited_seconds);
  const double microseconds = std::min(1e6 * longest, double{UINT32_MAX});
  for (const HostRun& host : launch_.hosts().hosts()) {
    if (host.can_answer()) host.link()->send(LongestWait{static_cast<uint32_t>(microseconds)});
  }
}

}  // namespace

std::shared_ptr<JobPart> straggler_watch(PartLaunch& launch) {
  return std::make_shared<StragglerWatch>(launch);
}

}  // namespace hvd::launcher
