// Finds work that stays pending. Each rank reports its own pending work to the root. The root asks all ranks for their
// state, logs the missing ranks with host and activity, and ends the job after the shutdown time. A rank without
// pending work sets no timer, and wakes only for the root's questions. Runtime owns StallInspector; the runtime core
// calls it as a service, with the progress lock held.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "runtime/core/runtime_core.h"
#include "runtime/settings/worker_settings.h"
#include "runtime/stall/stall_inquiry.h"
#include "runtime/stall/thread_stack.h"

namespace hvd::runtime {

// The name of the first agreement of all ranks, which is not the user's work.
constexpr std::string_view kStartName = "<start>";

struct StallOptions {
  int32_t rank = 0;
  int32_t size = 1;
  StallTimes times;
  std::string host;
  std::string report_path;  // may be empty: no report file
  StackChannel stack;
};

// Returns nullopt if the settings disable the inspector.
std::optional<StallOptions> stall_options(int32_t rank, int32_t size,
                                          const WorkerSettings& settings,
                                          const StackChannel& stack);

class StallInspector final : public Service {
 public:
  // `core` must exist until the last call of this service.
  StallInspector(RuntimeCore* core, StallOptions options);

  // Call it once, after all ranks have connected.
  void send_hello();
  // Returns the number of reports that this rank, the root, has made.
  uint64_t reports() const { return reports_; }

  void receive(int32_t from, ByteView message) override;
  Clock::time_point alarm() const override;
  void on_alarm(Clock::time_point now) override;

 private:
  Status handle(int32_t from, ByteView message);
  double age_of(const Submission& submission, Clock::time_point now) const;
  void warn_of_streams(Clock::time_point now) const;
  void report_waiting(Clock::time_point now);
  void answer(const StallAsk& ask);
  StallState state_of(const StallName& name) const;
  void publish(const StallReport& report);
  // Opens the report file. On failure, logs the error and returns a closed descriptor.
  UniqueFd open_report();
  void go_on_without_report(const Status& why);
  std::string shown_report() const;  // path of the report file, for errors

  RuntimeCore* const core_;
  const StallOptions options_;
  Clock::time_point next_check_ = Clock::time_point::min();  // next check of pending work
  std::optional<StallInquiry> inquiry_;  // the inquiry that the root leads; unset on other ranks
  uint64_t reports_ = 0;
  bool cannot_write_ = false;  // the report file's write error was logged
};

}  // namespace hvd::runtime
