#include "launcher/output/launch_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "base/text.h"
#include "launcher/output/terminal_text.h"

namespace hvd::launcher {

std::string progress_line(std::vector<HostProgress> hosts, size_t columns) {
  const size_t all = hosts.size();
  std::erase_if(hosts, [](const HostProgress& host) { return host.is_ready; });
  std::stable_sort(hosts.begin(), hosts.end(),
                   [](const auto& one, const auto& other) { return one.seconds > other.seconds; });
  std::string line = cat("hosts ready ", all - hosts.size(), "/", all);
  for (size_t i = 0; i < hosts.size(); ++i) {
    const std::string part = cat(i == 0 ? "; " : ", ", hosts[i].host, ": ", hosts[i].stage, " ",
                                 static_cast<int64_t>(hosts[i].seconds), " s");
    if (line.size() + part.size() + 5 > columns) return line + (i == 0 ? "" : ", ...");
    line += part;
  }
  return line;
}

std::string byte_rate(double bytes_per_second) {
  constexpr std::array kUnits = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  size_t unit = 0;
  for (; bytes_per_second >= 1000 && unit + 1 < kUnits.size(); ++unit) bytes_per_second /= 1000;
  return fmt::format("{:.{}f} {}", bytes_per_second, bytes_per_second < 10 && unit > 0 ? 1 : 0,
                     kUnits[unit]);
}

std::string step_rate(double steps_per_second) {
  const int digits = steps_per_second < 1 ? 2 : steps_per_second < 100 ? 1 : 0;
  return fmt::format("{:.{}f} steps/s", steps_per_second, digits);
}

std::string job_line(const JobProgress& job, size_t columns, bool is_utf8, bool has_color) {
  const std::string_view separator = is_utf8 ? " \u00b7 " : " | ";
  const std::string time = time_span(job.seconds);
  std::string line = cat(job.up, "/", job.size, job.size == 1 ? " rank" : " ranks");
  const auto add = [&](const std::string& part, std::string_view color = {}) {
    const size_t width = colored_width_of(line) + width_of(part) + 3 + 3 + time.size();
    if (width <= columns) line += cat(separator, colored(part, color));
  };
  if (job.steps_per_second) add(step_rate(*job.steps_per_second));
  if (job.bytes_per_second) add(byte_rate(*job.bytes_per_second));
  if (job.slowest) {
    add(cat("slowest rank ", job.slowest->rank, " (", printable(job.slowest->host), ") +",
            std::lround(job.slowest->late_seconds * 1000), " ms"),
        has_color ? kYellow : "");
  }
  line += cat(separator, time);
  return cut_colored(line, columns);
}

namespace {

// The window of the rates. In this time, slow jobs end about one step, and rates of fast jobs follow a change.
constexpr std::chrono::seconds kWindow{10};
// The time within which the ranks of an unresponsive host may come back.
constexpr std::chrono::seconds kMoment{3};

}  // namespace

void ProgressRates::add(Clock::time_point time, const Counts& counts) {
  if (!looks_.empty() && time == looks_.back().time) return;
  // The time is earlier than the last one if the job has been launched again.
  if (!looks_.empty() && time < looks_.back().time) looks_.clear();
  const Counts last = looks_.empty() ? counts : looks_.back().counts;
  if (counts.ranks < last.ranks) {
    if (!missing_since_) missing_since_ = time;
    if (time - *missing_since_ < kMoment) return;
  }
  missing_since_.reset();
  if (counts.steps < last.steps || counts.bytes < last.bytes || counts.ranks != last.ranks)
    looks_.clear();
  looks_.push_back({time, counts});
  while (looks_.size() > 2 && time - looks_[1].time >= kWindow) looks_.pop_front();
}

std::optional<double> ProgressRates::rate(uint64_t Counts::*count) const {
  if (looks_.size() < 2 || looks_.back().counts.*count == 0) return {};
  const std::chrono::duration<double> time = looks_.back().time - looks_.front().time;
  if (time.count() <= 0) return {};
  return static_cast<double>(looks_.back().counts.*count - looks_.front().counts.*count) /
         time.count();
}

std::optional<double> ProgressRates::steps_per_second() const { return rate(&Counts::steps); }
std::optional<double> ProgressRates::bytes_per_second() const { return rate(&Counts::bytes); }

}  // namespace hvd::launcher
