#include "launcher/job/status_line.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "launcher/output/line_folder.h"
#include "launcher/output/terminal_width.h"

namespace hvd::launcher {
namespace {

// Most starts end before it.
constexpr std::chrono::milliseconds kFirst{700};
constexpr std::chrono::milliseconds kEach{1000};
// A program that has written nothing and called no hvd.init() is no longer at its start.
constexpr std::chrono::seconds kStartsFor{10};

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

StatusLine::StatusLine(net::asio::any_io_executor executor, const InitWaits& waits,
                       JobOutput& output, std::vector<std::string> hosts, Look look)
    : waits_(waits),
      output_(output),
      hosts_(std::move(hosts)),
      look_(std::move(look)),
      timer_(std::move(executor)) {}

bool StatusLine::is_starting(bool waits) const {
  return waits ||
         (!has_met_ && !has_written_ && !waits_.has_begun() && Clock::now() - began_ < kStartsFor);
}

net::Task<std::string> StatusLine::line() {
  const auto wait = waits_.longest();
  const size_t columns = terminal_width(STDERR_FILENO);
  if (is_starting(wait.has_value())) {
    const std::chrono::duration<double> seconds = Clock::now() - began_;
    co_return start_line(hosts_.size(), wait, hosts_, seconds.count(), columns);
  }
  State state = co_await look_();
  rates_.add(Clock::now(), state.steps, state.bytes);
  state.job.steps_per_second = rates_.steps_per_second();
  state.job.bytes_per_second = rates_.bytes_per_second();
  co_return job_line(state.job, columns - 1, is_utf8_locale());
}

net::Task<void> StatusLine::run(std::shared_ptr<StatusLine> self) {
  if (!self->output_.has_area()) co_return;
  self->began_ = Clock::now();
  self->timer_.expires_after(kFirst);
  co_await self->timer_.async_wait(net::use_tuple);
  while (!self->is_over_) {
    self->is_asleep_ = !self->output_.has_status();
    const auto next = self->is_asleep_ ? Clock::time_point::max() : Clock::now() + kEach;
    if (!self->is_asleep_ && !self->is_suspended_) {
      const std::string line = co_await self->line();
      if (self->is_over_) co_return;
      if (!self->is_suspended_) self->output_.show_status(line);
    }
    self->timer_.expires_at(next);
    co_await self->timer_.async_wait(net::use_tuple);
  }
}

void StatusLine::stop() {
  is_over_ = true;
  output_.show_status("");
  timer_.cancel();
}

void StatusLine::has_written() {
  has_written_ = true;
  if (is_asleep_) timer_.cancel();
}

}  // namespace hvd::launcher
