// Detects whether the ranks of a job hang, and prints a sentence about it (--hang-warning, --on-hang). Queries the
// agents for counters, which are cheap to read. If no counter grows, also queries them for the stacks of the ranks.
// rules/hang_rule.h decides and formats the sentence. Watches a job until a rank calls hvd.init(): such ranks report a
// stall themselves (src/runtime/stall).

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/process/signals.h"
#include "base/text.h"
#include "launcher/observe/parts.h"
#include "launcher/observe/rules/changed_variables.h"
#include "launcher/observe/rules/hang_rule.h"
#include "launcher/observe/rules/lone_ranks.h"
#include "launcher/output/report.h"

namespace hvd::launcher {
namespace {

enum class HangReaction : uint8_t { kWarn, kDump, kStop };

class HangWatch : public JobPart {
 public:
  explicit HangWatch(PartLaunch& launch);

  void on(const JobEvent& event) override;
  Clock::time_point deadline() const override { return next_; }
  void on_deadline() override;

 private:
  bool is_wanted() const;
  std::vector<int> running() const;
  void look_later();
  net::Task<void> look();
  void look_at_variables(const HangRule::Signs& signs);
  net::Task<void> look_at_places();
  void report(const HangRule::Finding& finding);

  PartLaunch& launch_;
  const HangReaction reaction_;
  HangRule rule_;
  bool has_init_ = false;  // a rank has called hvd.init()
  LoneRanks lone_;
  bool has_named_variables_ = false;
  Clock::time_point next_ = Clock::time_point::max();
};

std::optional<HangReaction> parse_hang_reaction(std::string_view word) {
  constexpr std::array<std::string_view, 3> kWords = {"warn", "dump", "stop"};
  const auto found = std::ranges::find(kWords, word);
  if (found == kWords.end()) return {};
  return static_cast<HangReaction>(found - kWords.begin());
}

HangWatch::HangWatch(PartLaunch& launch)
    : launch_(launch),
      reaction_(parse_hang_reaction(launch.settings().end.on_hang).value_or(HangReaction::kWarn)),
      rule_(launch.settings().end.hang_warning, reaction_ == HangReaction::kStop) {}

// Elastic jobs are not watched, because their ranks join and leave.
bool HangWatch::is_wanted() const {
  const LaunchSettings& settings = launch_.settings();
  return settings.end.hang_warning != 0 && !settings.environment.independent &&
         !launch_.is_elastic() && !has_init_ && launch_.hosts().size() > 1;
}

void HangWatch::on(const JobEvent& event) {
  if (const auto* wrote = std::get_if<RankWrote>(&event)) {
    if (!wrote->is_end) rule_.moved(wrote->rank);
  } else if (std::holds_alternative<RankJoined>(event)) {
    has_init_ = true;
    next_ = Clock::time_point::max();
  } else if (std::holds_alternative<AllStarted>(event) && is_wanted()) {
    look_later();
  }
}

void HangWatch::look_later() { next_ = Clock::now() + duration_of(rule_.interval()); }

void HangWatch::on_deadline() {
  next_ = Clock::time_point::max();
  launch_.run(shared_from_this(), look());
}

std::vector<int> HangWatch::running() const {
  std::vector<int> running;
  for (const RankRun& rank : launch_.hosts().ranks()) {
    if (!rank.is_over()) running.push_back(rank.number());
  }
  return running;
}

net::Task<void> HangWatch::look() {
  std::vector<HostAnswer> answers = co_await launch_.inspector().sample(SampleGroup::kSigns);
  if (is_over_ || has_init_) co_return;
  const auto signs = of_running_ranks(launch_.hosts(), answers, &HostSample::signs);
  look_at_variables(signs);
  // A host that does not answer may be suspended: forget the earlier observations.
  if (signs.size() != running().size())
    rule_.forget();
  else if (rule_.look(signs, Clock::now()))
    co_await look_at_places();
  if (!is_over_ && !has_init_) look_later();
}

void HangWatch::look_at_variables(const HangRule::Signs& signs) {
  for (const auto& [number, each] : signs) launch_.hosts().rank(number).set_changes(each.changes);
  const bool cannot_meet = lone_.look(signs, launch_.hosts(), Clock::now());
  if (!cannot_meet || std::exchange(has_named_variables_, true)) return;
  launch_.output().print(cat("the ranks cannot meet: ", changed_variables(launch_.hosts())));
}

net::Task<void> HangWatch::look_at_places() {
  std::vector<HostAnswer> answers = co_await launch_.inspector().ask(InspectDetail::kPlaces);
  if (is_over_ || has_init_) co_return;
  auto places = of_running_ranks(launch_.hosts(), answers, &HostSample::places);
  const bool has_ended = running().size() != launch_.hosts().ranks().size();
  const auto finding = rule_.judge(std::move(places), has_ended, Clock::now());
  if (finding && !launch_.is_ending()) report(*finding);
}

void HangWatch::report(const HangRule::Finding& finding) {
  using enum HangRule::Finding::Kind;
  std::vector<EndedRank> ended;
  for (const RankRun& rank : launch_.hosts().ranks()) {
    if (!rank.is_over()) continue;
    const RankExit& exit = rank.exit();
    ended.push_back({rank.number(), exit.signal == 0 ? cat("exit code ", exit.code)
                                                     : cat("by ", signal_name(exit.signal))});
  }
  std::string sentence = hang_sentence(finding, ended, launch_.hosts().host_names());
  if (finding.kind != kWait && lone_.may_explain(finding.places, launch_.hosts()) &&
      !std::exchange(has_named_variables_, true))
    sentence += cat("; ", changed_variables(launch_.hosts()));
  if (finding.kind == kStop) {
    return launch_.end_job(kExitTimeout,
                           cat("the job hangs and was ended (--on-hang stop): ", sentence), -1);
  }
  const char* const verdict = is_certain(finding) ? "the job hangs: " : "the job may hang: ";
  launch_.output().print(finding.kind == kWait ? sentence : cat(verdict, sentence));
  const std::string missing = missing_stacks(finding, launch_.hosts().host_names());
  if (!missing.empty()) launch_.output().print(missing);
  if (finding.kind == kHang && reaction_ == HangReaction::kDump)
    launch_.run(shared_from_this(), launch_.inspector().show_stacks());
}

}  // namespace

std::shared_ptr<JobPart> hang_watch(PartLaunch& launch) {
  return std::make_shared<HangWatch>(launch);
}

}  // namespace hvd::launcher
