#include "launcher/observe/start_watch.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "launcher/output/line_folder.h"

namespace hvd::launcher {
namespace {

// Between two sentences about one wait.
constexpr std::chrono::seconds kOnTerminal{10};
constexpr std::chrono::seconds kElsewhere{60};
// A program that has written nothing and has called no hvd.init() is no longer at its start.
constexpr std::chrono::seconds kStartsFor{10};

// The paragraph of one rank in the answers of the agents.
std::string activity_of(int rank, const std::vector<std::string>& answers) {
  const std::string head = cat("rank ", rank, "\n  ");
  for (const std::string& text : answers) {
    size_t at = text.find(head);
    while (at != std::string::npos && at != 0 && text[at - 1] != '\n') at = text.find(head, at + 1);
    if (at == std::string::npos) continue;
    const size_t begin = at + head.size();
    return text.substr(begin, text.find('\n', begin) - begin);
  }
  return {};
}

}  // namespace

std::string start_line(size_t ranks, const std::optional<InitWaits::Wait>& wait,
                       const std::vector<std::string>& host_of, double seconds, size_t columns) {
  std::string line = cat("ranks started ", ranks);
  if (wait) {
    line += cat("; importing ", wait->missing.size(), " (", ranks_on_hosts(wait->missing, host_of),
                "); in hvd.init ", wait->present.size());
  }
  line += cat("; ", static_cast<int64_t>(seconds), " s");
  return line.size() < columns ? line : line.substr(0, std::max<size_t>(columns, 2) - 2);
}

std::string wait_sentence(const InitWaits::Wait& wait, const std::vector<std::string>& host_of,
                          int64_t seconds, const std::string& activity) {
  const bool is_one = wait.missing.size() == 1;
  return cat(ranks_on_hosts(wait.missing, host_of), is_one ? " has" : " have",
             " not called hvd.init() for ", seconds, " s",
             activity.empty()
                 ? ""
                 : cat(": ", is_one ? "" : cat("rank ", wait.missing[0], " is "), activity),
             "; ", wait.present.size() == 1 ? "rank " : "ranks ", ranks_text(wait.present),
             wait.present.size() == 1 ? " waits" : " wait", is_one ? " for it" : " for them");
}

StartWatch::StartWatch(net::asio::any_io_executor executor, const InitWaits& waits,
                       JobOutput& output, std::vector<std::string> hosts, Ask ask)
    : waits_(waits),
      output_(output),
      hosts_(std::move(hosts)),
      ask_(std::move(ask)),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      timer_(std::move(executor)) {}

net::Task<void> StartWatch::run(std::shared_ptr<StartWatch> self) {
  const auto interval = self->is_terminal_ ? kOnTerminal : kElsewhere;
  const Clock::time_point began = Clock::now();
  Clock::time_point reported = began;  // the last sentence, or the beginning of the wait
  while (!self->is_over_) {
    const auto wait = self->waits_.longest();
    const Clock::time_point now = Clock::now();
    if (wait) reported = std::max(reported, wait->since);
    if (wait && now >= reported + interval) {
      reported = now;
      net::asio::co_spawn(self->timer_.get_executor(), report(self, *wait), net::asio::detached);
    }
    self->timer_.expires_at(wait ? reported + interval : Clock::time_point::max());
    co_await self->timer_.async_wait(net::use_tuple);
  }
}

std::string StartWatch::line(size_t columns) const {
  const auto wait = waits_.longest();
  const std::chrono::duration<double> seconds = Clock::now() - began_;
  const bool has_begun = has_begun_ || waits_.has_begun() || seconds > kStartsFor;
  if (!wait && has_begun) return "";
  return start_line(hosts_.size(), wait, hosts_, seconds.count(), columns);
}

void StartWatch::stop() {
  is_over_ = true;
  timer_.cancel();
}

net::Task<void> StartWatch::report(std::shared_ptr<StartWatch> self, InitWaits::Wait wait) {
  const std::vector<std::string> answers = co_await self->ask_();
  if (self->is_over_) co_return;
  const auto now = self->waits_.longest();
  if (!now || now->since != wait.since) co_return;  // the wait is over
  const auto seconds = std::chrono::round<std::chrono::seconds>(Clock::now() - now->since).count();
  self->output_.print(
      wait_sentence(*now, self->hosts_, seconds, activity_of(now->missing[0], answers)));
}

}  // namespace hvd::launcher
