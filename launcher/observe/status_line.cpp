// Shows the progress of a job in one line of the terminal, below the ranks' output: first the starting ranks, then the
// number of running ranks and their speed. Queries the agents once a second while the terminal shows the line;
// otherwise checks the terminal once a second.

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "base/clock.h"
#include "launcher/observe/parts.h"
#include "launcher/output/terminal_text.h"

namespace hvd::launcher {
namespace {

// Most starts end before this time.
constexpr std::chrono::milliseconds kFirst{700};
constexpr std::chrono::milliseconds kEach{1000};
// Until this time, a program without output and without hvd.init() is shown as starting.
constexpr std::chrono::seconds kStartsFor{10};

class StatusLine : public JobPart {
 public:
  explicit StatusLine(PartLaunch& launch) : launch_(launch) {}

  void on(const JobEvent& event) override;
  Clock::time_point deadline() const override {
    return is_drawing_ ? Clock::time_point::max() : next_;
  }
  void on_deadline() override;
  net::Task<void> end() override;

 private:
  std::string start(size_t columns) const;
  net::Task<void> draw();

  PartLaunch& launch_;
  ProgressRates rates_;
  std::optional<Clock::time_point> began_;  // when all ranks ran, on a terminal
  bool has_written_ = false;                // a rank has written output, or the ranks have met
  bool is_asleep_ = false;                  // the line is not shown
  bool is_drawing_ = false;
  Clock::time_point next_ = Clock::time_point::max();
};

void StatusLine::on(const JobEvent& event) {
  if (std::holds_alternative<AllStarted>(event) && launch_.output().terminal().has_area()) {
    began_ = Clock::now();
    next_ = *began_ + kFirst;
    return;
  }
  const auto* const wrote = std::get_if<RankWrote>(&event);
  if (wrote != nullptr && !wrote->is_end) has_written_ = true;
  if (const auto* joined = std::get_if<RankJoined>(&event))
    has_written_ |= joined->report.has_met != 0;
  // Draw the line soon after an event: the launcher may be in the foreground again.
  const bool is_quiet =
      std::holds_alternative<HostSilent>(event) || std::holds_alternative<InputTaken>(event);
  const bool is_due = wrote == nullptr ? !is_quiet : is_asleep_;
  if (began_ && is_due) next_ = Clock::now();
}

void StatusLine::on_deadline() {
  is_asleep_ = !launch_.output().terminal().has_status();
  // Set the deadline even while the line is hidden: the shell's fg sends no signal to this process.
  next_ = Clock::now() + kEach;
  if (is_asleep_) return launch_.output().terminal().end_hidden_bars();
  is_drawing_ = true;
  launch_.run(shared_from_this(), draw());
}

// Returns the line about the start; empty after the start has ended.
std::string StatusLine::start(size_t columns) const {
  const auto wait = launch_.init_waits().longest();
  const std::chrono::duration<double> seconds = Clock::now() - *began_;
  const bool has_begun = has_written_ || launch_.init_waits().has_begun() || seconds > kStartsFor;
  if (!wait && has_begun) return "";
  const std::vector<std::string> hosts = launch_.hosts().host_names();
  return start_line(hosts.size(), wait, hosts, seconds.count(), columns);
}

net::Task<void> StatusLine::draw() {
  const size_t columns = terminal_width(STDERR_FILENO);
  std::string line = start(columns);
  if (line.empty()) {
    JobCounts job = co_await launch_.inspector().counts();
    is_drawing_ = false;
    if (is_over_) co_return;
    rates_.add(job.read_at, job.counts);
    job.job.steps_per_second = rates_.steps_per_second();
    job.job.bytes_per_second = rates_.bytes_per_second();
    line = job_line(job.job, StatusArea::room(columns), is_utf8_locale(),
                    launch_.output().colors_status());
  }
  is_drawing_ = false;
  launch_.output().terminal().show_status(line);
}

net::Task<void> StatusLine::end() {
  is_over_ = true;
  launch_.output().terminal().show_status("");
  co_return;
}

}  // namespace

std::shared_ptr<JobPart> status_line(PartLaunch& launch) {
  return std::make_shared<StatusLine>(launch);
}

}  // namespace hvd::launcher
