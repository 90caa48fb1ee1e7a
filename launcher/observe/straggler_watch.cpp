#include "launcher/observe/straggler_watch.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "launcher/observe/rules/straggler_report.h"
#include "launcher/protocol/host_signs.h"

namespace hvd::launcher {
namespace {

// A job whose steps are shorter than a second in 50 is seen in part.
constexpr double kShortestPause = 1, kLongestPause = 60;
// While no step ends.
constexpr double kLongestIdle = 15;
// Before the first step, in the first minutes: many ranks start slowly.
constexpr double kLongestBefore = 2;
constexpr int kLooksBefore = 150;
// Behind the end of a window, which the agents see at different moments.
constexpr double kMargin = 0.05;
constexpr int kLooksAtCauses = 20, kLooksAtPressure = 5;
constexpr double kShortestLook = 0.1;
// py-spy needs some 15 ms to read a stack: of a rank that is less late, it reads another line.
constexpr double kLeastForSamples = 0.02;

double now_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

}  // namespace

std::optional<StragglerReaction> parse_straggler_reaction(std::string_view word) {
  constexpr std::array<std::string_view, 3> kWords = {"warn", "restart", "off"};
  const auto found = std::ranges::find(kWords, word);
  if (found == kWords.end()) return {};
  return static_cast<StragglerReaction>(found - kWords.begin());
}

StragglerWatch::StragglerWatch(net::asio::any_io_executor executor, const HostTable& hosts,
                               RankOf rank_of, Ask ask, AskPlace ask_place, Report report)
    : hosts_(hosts),
      rank_of_(std::move(rank_of)),
      ask_(std::move(ask)),
      ask_place_(std::move(ask_place)),
      report_(std::move(report)),
      timer_(std::move(executor)) {}

net::Task<void> StragglerWatch::run(std::shared_ptr<StragglerWatch> self) {
  while (!self->is_over_) {
    if (self->rule_.is_suspicious() && self->idle_ == 0)
      co_await self->look_at_causes();
    else
      co_await self->pause(self->seconds_to_window());
    if (!self->is_over_) co_await self->look();
  }
}

void StragglerWatch::stop() {
  is_over_ = true;
  timer_.cancel();
}

net::Task<void> StragglerWatch::pause(double seconds) {
  timer_.expires_after(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  co_await timer_.async_wait(net::use_tuple);
}

double StragglerWatch::seconds_to_window() const {
  if (idle_ > 0) return idle_;
  const double steps = static_cast<double>(std::max<size_t>(alignment_.left(), 1));
  return std::clamp(steps * step_seconds_ + kMargin, kShortestPause, kLongestPause);
}

// The words of each agent about the ranks of its own host that run, by their present rank.
template <typename Each>
std::map<int, Each> StragglerWatch::by_rank(const std::vector<std::string>& texts,
                                            Result<std::vector<Each>> (*decode)(std::string_view),
                                            std::map<int, int>* host_of) const {
  std::map<int, Each> found;
  for (size_t number = 0; number < texts.size(); ++number) {
    auto all = decode(texts[number]);
    if (!all.ok()) continue;
    const HostRun& host = hosts_.host(static_cast<int>(number));
    for (Each& each : *all) {
      const bool is_own = std::ranges::any_of(host.ranks(), [&](const RankRun* rank) {
        return rank->number() == each.rank && !rank->is_over();
      });
      const int rank = is_own ? rank_of_(each.rank) : -1;
      if (rank < 0) continue;
      if (host_of != nullptr) (*host_of)[rank] = host.number();
      found.emplace(rank, std::move(each));
    }
  }
  return found;
}

// By present rank.
std::vector<std::string> StragglerWatch::host_names() const {
  std::vector<std::string> names;
  for (const RankRun& run : hosts_.ranks()) {
    const int rank = rank_of_(run.number());
    if (rank < 0) continue;
    names.resize(std::max(names.size(), static_cast<size_t>(rank) + 1));
    names[static_cast<size_t>(rank)] = run.host().name();
  }
  return names;
}

// The ranks that the job has now.
int StragglerWatch::members() const {
  return static_cast<int>(std::ranges::count_if(
      hosts_.ranks(), [this](const RankRun& run) { return rank_of_(run.number()) >= 0; }));
}

// Returns the windows that are new.
std::vector<StepWindow> StragglerWatch::take(const std::vector<std::string>& answers) {
  std::map<int, int> host_of;
  std::map<int, StepAlignment::Rank> ranks;
  for (auto& [rank, steps] : by_rank<RankSteps>(answers, decode_steps, &host_of))
    ranks[rank] = {host_of[rank], std::move(steps)};
  // A host that does not answer may be suspended.
  if (static_cast<int>(ranks.size()) != members()) ranks.clear();
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
  const std::vector<std::string> answers = co_await ask_(InspectDetail::kSteps);
  if (is_over_) co_return;
  const std::vector<StepWindow> windows = take(answers);
  const std::vector<std::string> host_of_rank = host_names();
  if (std::exchange(known_names_, host_of_rank) != host_of_rank) forget_ranks();
  std::vector<StragglerFinding> findings;
  for (const StepWindow& window : windows) {
    tally_.take(window);
    for (StragglerFinding& each : rule_.judge(window)) findings.push_back(std::move(each));
  }
  if (!windows.empty() && on_window_) on_window_();
  for (StragglerFinding& finding : findings) {
    co_await report(std::move(finding), host_of_rank);
    if (is_over_) co_return;
  }
  if (rule_.is_suspicious() && findings.empty() && idle_ == 0) co_return;
  pressures_.clear();
  places_.clear();
}

// Looks several times until the next window ends.
net::Task<void> StragglerWatch::look_at_causes() {
  const double seconds = std::max(seconds_to_window(), kShortestPause);
  const int looks =
      std::max(1, std::min(kLooksAtCauses, static_cast<int>(seconds / kShortestLook)));
  for (int i = 0; i <= looks; ++i) {
    // A look reads all threads of the ranks: that of each place would delay them.
    if (i == looks || i % std::max(1, looks / kLooksAtPressure) == 0) {
      const std::vector<std::string> answers = co_await ask_(InspectDetail::kPressure);
      if (is_over_) co_return;
      pressures_.take(by_rank<RankPressure>(answers, decode_pressures), now_seconds());
    }
    if (i == looks) co_return;
    const double began = now_seconds();
    co_await look_at_place();
    if (is_over_) co_return;
    co_await pause(std::max(seconds / looks - (now_seconds() - began), 0.0));
    if (is_over_) co_return;
  }
}

int StragglerWatch::number_of(int rank) const {
  const auto found = std::ranges::find_if(hosts_.ranks(), [&](const RankRun& run) {
    return !run.is_over() && rank_of_(run.number()) == rank;
  });
  return found == hosts_.ranks().end() ? -1 : found->number();
}

// Asks about the suspected rank that is latest.
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
  const std::string answer = co_await ask_place_(number, static_cast<uint32_t>(late));
  if (is_over_) co_return;
  const auto places = decode_places(answer);
  if (!places.ok()) co_return;
  for (const RankPlace& place : *places) places_.take(rank, place);
}

// Their numbers mean other processes from now on.
void StragglerWatch::forget_ranks() {
  rule_ = {};
  tally_.forget_ranks();
  pressures_.clear();
  places_.clear();
}

// `host_of`: by rank, as in the window of the finding.
net::Task<void> StragglerWatch::report(StragglerFinding finding, std::vector<std::string> host_of) {
  StragglerCause cause;
  const bool has_cause =
      finding.kind != StragglerKind::kPeriodic && finding.kind != StragglerKind::kMoving;
  if (has_cause) {
    // Two windows may have ended at once.
    if (!pressures_.is_whole()) co_await look_at_causes();
    if (is_over_ || host_names() != host_of) co_return;
    cause = cause_of(finding, pressures_.growth());
  }
  const bool is_own = finding.kind == StragglerKind::kEverybody && !cause.is_of_host;
  const std::string why =
      is_own ? "the network, the clocks of processors, or the program itself" : cause.text;
  report_(finding, cause.is_of_host,
          straggler_sentence(finding, has_cause ? why : "",
                             finding.ranks.empty() ? LateLine{} : places_.line_of(finding.ranks),
                             host_of));
}

uint32_t StragglerWatch::longest_wait() const {
  double longest = 0;
  for (const StragglerRule::Lateness& rank : rule_.latest())
    longest = std::max(longest, rank.waited_seconds);
  return static_cast<uint32_t>(std::min(1e6 * longest, double{UINT32_MAX}));
}

std::vector<RankWaits> StragglerWatch::waits() const {
  std::vector<RankWaits> waits = tally_.waits();
  for (RankWaits& each : waits) {
    each.is_straggler = std::ranges::any_of(rule_.latest(), [&](const auto& rank) {
      return rank.rank == each.rank && rank.is_straggler;
    });
  }
  return waits;
}

}  // namespace hvd::launcher
