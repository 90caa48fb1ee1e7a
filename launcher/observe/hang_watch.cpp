#include "launcher/observe/hang_watch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/process/signals.h"
#include "base/text.h"
#include "launcher/observe/rules/hang_report.h"

namespace hvd::launcher {

std::optional<HangReaction> parse_hang_reaction(std::string_view word) {
  constexpr std::array<std::string_view, 3> kWords = {"warn", "dump", "stop"};
  const auto found = std::ranges::find(kWords, word);
  if (found == kWords.end()) return {};
  return static_cast<HangReaction>(found - kWords.begin());
}

HangWatch::HangWatch(net::asio::any_io_executor executor, const HostTable& hosts,
                     double limit_seconds, HangReaction reaction, Ask ask, Report report)
    : hosts_(hosts),
      ask_(std::move(ask)),
      report_(std::move(report)),
      rule_(limit_seconds, reaction == HangReaction::kStop),
      timer_(std::move(executor)) {}

net::Task<void> HangWatch::run(std::shared_ptr<HangWatch> self) {
  const auto pause = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(self->rule_.interval()));
  while (!self->is_over_) {
    self->timer_.expires_after(pause);
    co_await self->timer_.async_wait(net::use_tuple);
    if (!self->is_over_) co_await self->look();
  }
}

void HangWatch::stop() {
  is_over_ = true;
  timer_.cancel();
}

std::vector<int> HangWatch::running() const {
  std::vector<int> running;
  for (const RankRun& rank : hosts_.ranks()) {
    if (!rank.is_over()) running.push_back(rank.number());
  }
  return running;
}

// The words of each agent about the ranks of its own host; the first ones about each.
template <typename Each>
std::map<int, Each> HangWatch::by_rank(const HostTable& hosts,
                                       const std::vector<std::string>& texts,
                                       Result<std::vector<Each>> (*decode)(std::string_view)) {
  std::map<int, Each> found;
  for (size_t number = 0; number < texts.size(); ++number) {
    auto all = decode(texts[number]);
    if (!all.ok()) continue;
    const HostRun& host = hosts.host(static_cast<int>(number));
    for (Each& each : *all) {
      const bool is_own = std::ranges::any_of(host.ranks(), [&](const RankRun* rank) {
        return rank->number() == each.rank && !rank->is_over();
      });
      if (is_own) found.emplace(each.rank, std::move(each));
    }
  }
  return found;
}

net::Task<void> HangWatch::look() {
  const std::vector<std::string> answers = co_await ask_(InspectDetail::kSigns);
  if (is_over_) co_return;
  const auto signs = by_rank<RankSigns>(hosts_, answers, decode_signs);
  // A host that does not answer may be suspended.
  if (signs.size() != running().size()) co_return rule_.forget();
  if (!rule_.look(signs, Clock::now())) co_return;
  const std::vector<std::string> more = co_await ask_(InspectDetail::kPlaces);
  if (is_over_) co_return;
  auto places = by_rank<RankPlace>(hosts_, more, decode_places);
  const bool has_ended = running().size() != hosts_.ranks().size();
  if (const auto finding = rule_.judge(std::move(places), has_ended, Clock::now()))
    report(*finding);
}

void HangWatch::report(const HangRule::Finding& finding) {
  std::vector<std::string> host_of;
  std::vector<EndedRank> ended;
  for (const RankRun& rank : hosts_.ranks()) {
    host_of.push_back(rank.host().name());
    if (!rank.is_over()) continue;
    const RankExit& exit = rank.exit();
    ended.push_back({rank.number(), exit.signal == 0 ? cat("exit code ", exit.code)
                                                     : cat("by ", signal_name(exit.signal))});
  }
  report_(finding.kind, hang_sentence(finding, ended, host_of));
}

}  // namespace hvd::launcher
