// Ends a job that has run for --timeout seconds (default: unlimited), and first shows the stacks of its ranks.

#include "base/text.h"
#include "launcher/observe/parts.h"
#include "launcher/output/report.h"

namespace hvd::launcher {
namespace {

class TimeLimit : public JobPart {
 public:
  explicit TimeLimit(PartLaunch& launch) : launch_(launch) {}

  void on(const JobEvent& event) override;
  Clock::time_point deadline() const override { return end_; }
  void on_deadline() override;

 private:
  net::Task<void> end_job();

  PartLaunch& launch_;
  Clock::time_point end_ = Clock::time_point::max();
};

void TimeLimit::on(const JobEvent& event) {
  const double seconds = launch_.settings().end.timeout.value_or(0);
  if (!std::holds_alternative<Starting>(event) || seconds <= 0) return;
  end_ = launch_.began() + duration_of(seconds);
}

void TimeLimit::on_deadline() {
  end_ = Clock::time_point::max();
  launch_.run(shared_from_this(), end_job());
}

net::Task<void> TimeLimit::end_job() {
  co_await launch_.inspector().show_stacks();
  if (is_over_) co_return;
  launch_.end_job(
      kExitTimeout,
      cat("the job was ended after ", launch_.settings().end.timeout.value_or(0), " s (--timeout)"),
      -1);
}

}  // namespace

std::shared_ptr<JobPart> time_limit(PartLaunch& launch) {
  return std::make_shared<TimeLimit>(launch);
}

}  // namespace hvd::launcher
