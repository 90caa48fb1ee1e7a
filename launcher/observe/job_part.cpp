#include "launcher/observe/job_part.h"

#include <algorithm>
#include <exception>

#include "base/log/log.h"
#include "base/text.h"

namespace hvd::launcher {

struct JobParts::State {
  State(net::asio::any_io_executor executor, std::vector<std::shared_ptr<JobPart>> parts)
      : parts(std::move(parts)), timer(std::move(executor)) {}

  std::vector<std::shared_ptr<JobPart>> parts;
  net::asio::steady_timer timer;
  Clock::time_point due = Clock::time_point::max();  // when the timer expires
  bool is_over = false;
};

JobParts::JobParts(net::asio::any_io_executor executor, std::vector<std::shared_ptr<JobPart>> parts)
    : state_(std::make_shared<State>(std::move(executor), std::move(parts))) {}

JobParts::~JobParts() {
  state_->is_over = true;
  state_->timer.cancel();
  // A cancelled timer or task may keep the state alive until the loop runs again.
  state_->parts.clear();
}

void JobParts::report(const JobEvent& event) {
  if (state_->is_over) return;
  for (const auto& part : state_->parts) part->on(event);
  arm(state_);
}

void JobParts::run(std::shared_ptr<JobPart> part, net::Task<void> task) {
  net::asio::co_spawn(state_->timer.get_executor(), std::move(task),
                      [part = std::move(part), state = state_](const std::exception_ptr& failure) {
                        if (failure) {
                          log::warning(cat("a part of the launcher has ended: ",
                                           net::status_of(failure, "it was cut off").message()));
                        }
                        arm(state);
                      });
}

void JobParts::arm(const std::shared_ptr<State>& state) {
  if (state->is_over) return;
  Clock::time_point due = Clock::time_point::max();
  for (const auto& part : state->parts) due = std::min(due, part->deadline());
  if (std::exchange(state->due, due) == due) return;
  state->timer.expires_at(due);
  state->timer.async_wait([state](const net::error_code& error) {
    if (error || state->is_over) return;
    state->due = Clock::time_point::max();
    const Clock::time_point now = Clock::now();
    for (const auto& part : state->parts) {
      if (part->deadline() <= now) part->on_deadline();
    }
    arm(state);
  });
}

net::Task<void> JobParts::end() {
  state_->is_over = true;
  state_->timer.cancel();
  for (const auto& part : state_->parts) co_await part->end();
}

}  // namespace hvd::launcher
