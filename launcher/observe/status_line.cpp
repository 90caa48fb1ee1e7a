#include "launcher/observe/status_line.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "launcher/terminal/terminal_width.h"

namespace hvd::launcher {
namespace {

// Most starts end before it.
constexpr std::chrono::milliseconds kFirst{700};
constexpr std::chrono::milliseconds kEach{1000};

}  // namespace

StatusLine::StatusLine(net::asio::any_io_executor executor, JobOutput& output, Start start,
                       Look look)
    : output_(output),
      start_(std::move(start)),
      look_(std::move(look)),
      timer_(std::move(executor)) {}

net::Task<std::string> StatusLine::line() {
  const size_t columns = terminal_width(STDERR_FILENO);
  std::string start = start_(columns);
  if (!start.empty()) co_return start;
  State state = co_await look_();
  rates_.add(state.read_at, state.counts);
  state.job.steps_per_second = rates_.steps_per_second();
  state.job.bytes_per_second = rates_.bytes_per_second();
  co_return job_line(state.job, StatusArea::room(columns), is_utf8_locale(),
                     output_.colors_status());
}

net::Task<void> StatusLine::run(std::shared_ptr<StatusLine> self) {
  if (!self->output_.has_area()) co_return;
  self->timer_.expires_after(kFirst);
  co_await self->timer_.async_wait(net::use_tuple);
  while (!self->is_over_) {
    self->is_asleep_ = !self->output_.has_status();
    if (self->is_asleep_) self->output_.end_hidden_bars();
    // Also while it is not shown: no signal comes when a shell's fg gives it the terminal.
    const auto next = Clock::now() + kEach;
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

}  // namespace hvd::launcher
