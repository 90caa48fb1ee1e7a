// The root's side of the stall inspector: makes a question to all ranks from their reports of pending
// work, and a report of the stall from their answers. StallInspector owns and calls StallInquiry,
// sends the messages, and passes the current time. Pure. Lives on the root's progress thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "runtime/stall/stall_report.h"

namespace hvd::runtime {

// Maximum number of reports of one stall, never reached in practice, since the intervals double.
constexpr uint32_t kMostReports = 40;

struct StallTimes {
  double warning = 60;  // seconds
  double shutdown = 0;  // 0: never

  // Returns the pending time at which work gets report `index`, from 0: at the warning time, then each
  // time at twice the previous time, and at the shutdown time.
  double report_after(uint32_t index) const;
};

class StallInquiry {
 public:
  // `is_member(process set, rank)`: only for ranks that do not answer. `parents`: the rank that
  // forwards each rank's answer, or -1.
  StallInquiry(int32_t size, StallTimes times, std::function<bool(int32_t, int32_t)> is_member,
               std::vector<int32_t> parents);

  void hello(int32_t from, StallHello hello);
  // Records that a rank waits. Does not ask again about names of the current question or of a recent one.
  void waiting(int32_t from, const StallWaiting& waiting, Clock::time_point now);
  void answer(int32_t from, StallAnswer answer);

  // Returns the next time at which ask() or conclude() may return a value.
  Clock::time_point alarm() const;
  // Returns the question to all ranks, if it is due.
  std::optional<StallAsk> ask(Clock::time_point now);
  // Returns the report once all ranks have answered or the time limit has passed; nullopt before, and if no work is
  // stalled.
  std::optional<StallReport> conclude(Clock::time_point now);

 private:
  struct Stall {
    int32_t op = 0;
    Clock::time_point since{};
    Clock::time_point asked{};
    Clock::time_point next{};  // earliest time of the next question
  };
  bool complete() const { return answers_left_ == 0; }
  std::optional<StallReport::Work> judge(size_t index, Clock::time_point now);
  void add_missing(StallReport* report) const;
  // `indices`: the positions of the report's work in the question.
  void add_waiting(const std::vector<size_t>& indices, StallReport* report) const;
  // Returns the silent rank that blocks the answer of `rank`, or -1.
  int32_t hidden_by(int32_t rank) const;

  const int32_t size_;
  const StallTimes times_;
  const std::function<bool(int32_t, int32_t)> is_member_;
  const std::vector<int32_t> parents_;
  std::map<StallName, Stall> stalls_;
  std::vector<StallHello> ranks_;
  std::vector<StallName> candidates_;  // names for the next question
  Clock::time_point ask_at_ = Clock::time_point::max();

  // The open question.
  std::optional<StallAsk> open_;
  Clock::time_point answers_until_{};
  std::vector<std::optional<StallAnswer>> answers_;  // each rank's answer, if it has arrived
  int32_t answers_left_ = 0;
  uint32_t inquiries_ = 0;
};

}  // namespace hvd::runtime
