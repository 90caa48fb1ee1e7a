// While ranks wait in hvd.init() for other ranks, prints a sentence with the missing ranks and the activity of the
// first one: every 10 s on a terminal, otherwise every 60 s.

#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "launcher/observe/parts.h"

namespace hvd::launcher {
namespace {

// The time between two sentences about the same wait.
constexpr std::chrono::seconds kOnTerminal{10};
constexpr std::chrono::seconds kElsewhere{60};

// Returns the line after "rank N" in the answers of the agents.
std::string activity_of(int rank, const std::vector<HostAnswer>& answers) {
  const std::string head = cat("rank ", rank, "\n  ");
  for (const auto& [text, sample] : answers) {
    size_t at = text.find(head);
    while (at != std::string::npos && at != 0 && text[at - 1] != '\n') at = text.find(head, at + 1);
    if (at == std::string::npos) continue;
    const size_t begin = at + head.size();
    return text.substr(begin, text.find('\n', begin) - begin);
  }
  return {};
}

class StartWatch : public JobPart {
 public:
  explicit StartWatch(PartLaunch& launch);

  void on(const JobEvent& event) override;
  Clock::time_point deadline() const override { return next_; }
  void on_deadline() override;

 private:
  void find_next();
  net::Task<void> report(InitWaits::Wait wait);

  PartLaunch& launch_;
  const Clock::duration interval_;
  bool has_begun_ = false;        // all ranks run
  Clock::time_point reported_{};  // when the last sentence was printed, or when the wait began
  Clock::time_point next_ = Clock::time_point::max();
};

StartWatch::StartWatch(PartLaunch& launch)
    : launch_(launch), interval_(::isatty(STDERR_FILENO) == 1 ? kOnTerminal : kElsewhere) {}

void StartWatch::on(const JobEvent& event) {
  if (std::holds_alternative<RankWrote>(event)) return;
  if (std::holds_alternative<AllStarted>(event)) {
    has_begun_ = true;
    reported_ = Clock::now();
  }
  if (has_begun_) find_next();
}

void StartWatch::find_next() {
  const auto wait = launch_.init_waits().longest();
  if (wait) reported_ = std::max(reported_, wait->since);
  next_ = wait ? reported_ + interval_ : Clock::time_point::max();
}

void StartWatch::on_deadline() {
  const auto wait = launch_.init_waits().longest();
  reported_ = Clock::now();
  find_next();
  if (wait) launch_.run(shared_from_this(), report(*wait));
}

net::Task<void> StartWatch::report(InitWaits::Wait wait) {
  const std::vector<HostAnswer> answers =
      co_await launch_.inspector().ask(InspectDetail::kActivity);
  if (is_over_) co_return;
  const auto now = launch_.init_waits().longest();
  if (!now || now->since != wait.since) co_return;  // the wait is over
  const auto seconds = std::chrono::round<std::chrono::seconds>(Clock::now() - now->since).count();
  launch_.output().print(wait_sentence(*now, launch_.hosts().host_names(), seconds,
                                       activity_of(now->missing[0], answers)));
}

}  // namespace

std::shared_ptr<JobPart> start_watch(PartLaunch& launch) {
  return std::make_shared<StartWatch>(launch);
}

}  // namespace hvd::launcher
