#include "runtime/stall/stall_inquiry.h"

#include <algorithm>
#include <utility>

#include "horovod/types.h"

namespace hvd::runtime {
namespace {

// Delay of a question, since waiting ranks report at about the same time: one question serves all reports.
constexpr double kGatherSeconds = 0.05;
// Time limit for replies. A rank's helper thread replies, independent of the user's code.
constexpr double kStateSeconds = 2;
// Maximum number of tracked names, more than any model has in flight.
constexpr size_t kMaxStalls = 1 << 16;

Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

bool waits(StallState state) {
  return state == StallState::kWaiting || state == StallState::kRunning;
}

}  // namespace

double StallTimes::report_after(uint32_t index) const {
  double doubled = warning;  // the next report time
  bool ends = shutdown > warning;
  for (uint32_t i = 0;; ++i) {
    const bool is_end = ends && shutdown <= doubled;
    if (i == std::min(index, kMostReports)) return is_end ? shutdown : doubled;
    if (!is_end || shutdown == doubled) doubled *= 2;
    if (is_end) ends = false;
  }
}

StallInquiry::StallInquiry(int32_t size, StallTimes times,
                           std::function<bool(int32_t, int32_t)> is_member,
                           std::vector<int32_t> parents)
    : size_(size),
      times_(times),
      is_member_(std::move(is_member)),
      parents_(std::move(parents)),
      ranks_(static_cast<size_t>(size)) {}

void StallInquiry::hello(int32_t from, StallHello hello) {
  if (from >= 0 && from < size_) ranks_[static_cast<size_t>(from)] = std::move(hello);
}

void StallInquiry::waiting(int32_t from, const StallWaiting& waiting, Clock::time_point now) {
  if (from < 0 || from >= size_) return;
  for (const auto& entry : waiting.entries) {
    if (stalls_.size() >= kMaxStalls && !stalls_.contains(entry.name)) continue;
    const Clock::time_point since = now - seconds(std::min(entry.seconds, 1e9));
    auto [found, fresh] = stalls_.try_emplace(entry.name, Stall{entry.op, since, {}, now});
    Stall& stall = found->second;
    // Work that was submitted after the last question is new: the previous work is complete.
    if (!fresh && since > stall.asked) stall = Stall{entry.op, since, stall.asked, now};
    stall.since = std::min(stall.since, since);
    const auto slack = seconds(times_.warning / 20);
    if (now + slack < stall.next) continue;
    if (std::find(candidates_.begin(), candidates_.end(), entry.name) != candidates_.end()) {
      continue;
    }
    candidates_.push_back(entry.name);
    ask_at_ = std::min(ask_at_, now + seconds(std::min(kGatherSeconds, times_.warning / 10)));
  }
}

Clock::time_point StallInquiry::alarm() const {
  if (open_) return complete() ? Clock::time_point::min() : answers_until_;
  return ask_at_;
}

std::optional<StallAsk> StallInquiry::ask(Clock::time_point now) {
  if (open_ || now < ask_at_) return {};
  ask_at_ = Clock::time_point::max();
  std::sort(candidates_.begin(), candidates_.end());
  open_ = StallAsk{++inquiries_, std::exchange(candidates_, {})};
  for (const StallName& name : open_->names) {
    Stall& stall = stalls_[name];
    stall.asked = now;
    const double age = std::chrono::duration<double>(now - stall.since).count();
    uint32_t index = 0;
    while (times_.report_after(index) <= age && index < kMostReports) ++index;
    stall.next = stall.since + seconds(times_.report_after(index));
  }
  answers_.assign(static_cast<size_t>(size_), {});
  answers_left_ = size_;
  answers_until_ = now + seconds(kStateSeconds);
  return open_;
}

void StallInquiry::answer(int32_t from, StallAnswer answer) {
  if (!open_ || from < 0 || from >= size_ || answer.inquiry != open_->inquiry ||
      answer.states.size() != open_->names.size()) {
    return;
  }
  auto& place = answers_[static_cast<size_t>(from)];
  if (!place) --answers_left_;
  place = std::move(answer);
}

std::optional<StallReport> StallInquiry::conclude(Clock::time_point now) {
  if (!open_ || (!complete() && now < answers_until_)) return {};
  StallReport report;
  report.warning_seconds = times_.warning;
  report.shutdown_seconds = times_.shutdown;
  std::vector<size_t> indices;
  for (size_t i = 0; i < open_->names.size(); ++i) {
    auto work = judge(i, now);
    if (!work) continue;
    report.work.push_back(*std::move(work));
    indices.push_back(i);
  }
  add_missing(&report);
  add_waiting(indices, &report);
  open_.reset();
  answers_.clear();
  if (report.work.empty()) return {};
  return report;
}

std::optional<StallReport::Work> StallInquiry::judge(size_t index, Clock::time_point now) {
  const StallName& name = open_->names[index];
  const Stall stall = stalls_[name];
  bool anybody = false;
  bool all_active = true;
  StallReport::Work work{
      name, stall.op, std::chrono::duration<double>(now - stall.since).count(), false, {}};
  for (int32_t rank = 0; rank < size_; ++rank) {
    const auto& answer = answers_[static_cast<size_t>(rank)];
    if (answer && waits(answer->states[index])) anybody = true;
    if (answer && answer->states[index] != StallState::kMissing) continue;
    if (!answer && !is_member_(name.process_set, rank)) continue;
    if (!answer && !name.awaits(rank)) continue;
    // If a silent rank blocks this answer, report only the silent rank: `rank` may have submitted the work.
    const int32_t hiding = answer ? -1 : hidden_by(rank);
    if (hiding >= 0 && is_member_(name.process_set, hiding)) continue;
    work.missing.push_back(rank);
    if (!answer || answer->last_name.empty() || answer->last_seconds > times_.warning) {
      all_active = false;
    }
  }
  if (!anybody) {
    stalls_.erase(name);
    return {};
  }
  // A join is not stalled while other ranks train: waiting for them is its purpose.
  if (work.missing.empty() || (stall.op == HVD_JOIN && all_active)) return {};
  work.overdue =
      times_.shutdown > 0 && times_.shutdown >= times_.warning && work.seconds >= times_.shutdown;
  return work;
}

int32_t StallInquiry::hidden_by(int32_t rank) const {
  int32_t highest = -1;
  for (auto above = parents_[static_cast<size_t>(rank)]; above >= 0;
       above = parents_[static_cast<size_t>(above)]) {
    if (!answers_[static_cast<size_t>(above)]) highest = above;
  }
  return highest;
}

void StallInquiry::add_missing(StallReport* report) const {
  for (int32_t rank = 0; rank < size_; ++rank) {
    const bool missed = std::any_of(
        report->work.begin(), report->work.end(), [rank](const StallReport::Work& work) {
          return std::binary_search(work.missing.begin(), work.missing.end(), rank);
        });
    if (!missed) continue;
    const StallHello& hello = ranks_[static_cast<size_t>(rank)];
    const auto& answer = answers_[static_cast<size_t>(rank)];
    report->missing.push_back(
        {rank, hello.host, hello.pid, answer.has_value(), answer.value_or(StallAnswer{}), {}});
  }
  for (int32_t rank = 0; rank < size_; ++rank) {
    if (answers_[static_cast<size_t>(rank)]) continue;
    const int32_t hiding = hidden_by(rank);
    for (StallReport::Rank& missing : report->missing) {
      if (missing.rank == hiding) missing.hidden.push_back(rank);
    }
  }
}

// Adds the waiting ranks, each only in the first operation for which it waits.
void StallInquiry::add_waiting(const std::vector<size_t>& indices, StallReport* report) const {
  for (int32_t rank = 0; rank < size_; ++rank) {
    const auto& answer = answers_[static_cast<size_t>(rank)];
    if (!answer) continue;
    size_t at = 0;
    while (at < indices.size() && !waits(answer->states[indices[at]])) ++at;
    if (at == indices.size()) continue;
    const StallReport::Work& work = report->work[at];
    const auto group = std::ranges::find_if(report->waiting, [&](const auto& each) {
      return each.name == work.name && each.place == answer->place;
    });
    if (group != report->waiting.end())
      group->ranks.push_back(rank);
    else
      report->waiting.push_back({work.name, work.op, answer->place, {rank}});
  }
}

}  // namespace hvd::runtime
