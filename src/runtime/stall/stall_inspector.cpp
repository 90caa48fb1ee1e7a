#include "runtime/stall/stall_inspector.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/files/own_file.h"
#include "base/log/log.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

// Maximum number of names in one report of a rank; the next report has the rest.
constexpr size_t kMaxNames = 256;

double seconds_of(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

std::optional<StallOptions> stall_options(int32_t rank, int32_t size,
                                          const WorkerSettings& settings,
                                          const StackChannel& stack) {
  StallTimes times{settings.stall.warning_seconds, settings.stall.shutdown_seconds};
  if (!settings.stall.is_checked || size < 2 || !(times.warning > 0)) return {};
  if (times.shutdown > 0 && times.shutdown < times.warning) {
    if (rank == 0) {
      log::warning(cat("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is ", times.shutdown,
                       ", less than HOROVOD_STALL_CHECK_TIME_SECONDS, ", times.warning,
                       "; a stall will not shutdown the job"));
    }
    times.shutdown = 0;
  }
  // Make the path absolute, since the program may change its directory later.
  std::error_code error;
  std::string report = settings.stall.report;
  if (!report.empty()) report = std::filesystem::absolute(report, error).string();
  return StallOptions{rank, size, times, host_name(settings), std::move(report), stack};
}

StallInspector::StallInspector(RuntimeCore* core, StallOptions options)
    : core_(core), options_(std::move(options)) {
  if (core_->is_root()) {
    inquiry_.emplace(
        options_.size, options_.times,
        [core](int32_t process_set, int32_t rank) { return core->is_member(process_set, rank); },
        core_->parents());
    // Test the file now, but not a FIFO: its reader would read the end of file when this descriptor
    // is closed.
    std::error_code error;
    if (!options_.report_path.empty() && !std::filesystem::is_fifo(options_.report_path, error))
      open_report();
  }
}

std::string StallInspector::shown_report() const {
  return cat(options_.report_path, " (--stall-report)");
}

UniqueFd StallInspector::open_report() {
  auto file = open_own_file_in(UniqueFd(AT_FDCWD), options_.report_path, O_APPEND, shown_report());
  if (file.ok()) return *std::move(file);
  go_on_without_report(file.status());
  return {};
}

void StallInspector::go_on_without_report(const Status& why) {
  if (std::exchange(cannot_write_, true)) return;
  log::warning(cat(why.message(), "; the job goes on without it"));
}

void StallInspector::send_hello() {
  ByteWriter out;
  encode(StallHello{options_.host, ::getpid()}, out);
  core_->to_root(ServiceId::kStall, out.view());
}

Clock::time_point StallInspector::alarm() const {
  if (core_->over()) return Clock::time_point::max();
  const auto own = core_->newest() != nullptr ? next_check_ : Clock::time_point::max();
  return inquiry_ ? std::min(own, inquiry_->alarm()) : own;
}

void StallInspector::on_alarm(Clock::time_point now) {
  if (now >= next_check_) report_waiting(now);
  if (!inquiry_) return;
  if (auto report = inquiry_->conclude(now)) {
    PlanApplication::LastCommon common = core_->last_common();
    report->last_common_op = common.op;
    report->last_common = std::move(common.name);
    publish(*report);
  }
  if (core_->over()) return;
  if (const auto ask = inquiry_->ask(now)) {
    ByteWriter out;
    encode(*ask, out);
    core_->to_all(ServiceId::kStall, out.view());
  }
}

// Returns the seconds for which a submission has waited. On a stream, the time before the end of the device's last
// batch does not count.
double StallInspector::age_of(const Submission& submission, Clock::time_point now) const {
  const Clock::time_point since = submission.since;
  return seconds_of(now - (submission.has_left ? std::max(since, core_->device_ended()) : since));
}

// Warns of operations whose work on a device stream has not completed within the warning time. Only the lowest rank of
// the set warns: the kernels of all its ranks wait for each other.
void StallInspector::warn_of_streams(Clock::time_point now) const {
  const Submission* oldest = nullptr;
  size_t count = 0;
  for (const Submission* one = core_->newest(); one != nullptr; one = one->older) {
    const bool is_due = age_of(*one, now) >= options_.times.report_after(one->stall_reports);
    if (!one->has_left || !is_due) continue;
    oldest = one;
    ++count;
  }
  if (oldest == nullptr) return;
  for (int32_t rank = 0; rank < options_.rank; ++rank) {
    if (core_->is_member(oldest->process_set, rank)) return;
  }
  const std::string others = count > 1 ? cat(" and ", count - 1, " more") : "";
  log::warning(cat(operation_text(*oldest), others, " on the stream of GPU ", oldest->own_device,
                   " of rank ", options_.rank, ", host ", options_.host, ": not over after ",
                   std::lround(age_of(*oldest, now)),
                   " s; its kernel waits for that of another rank, or for work of a program's "
                   "stream"));
}

// Sends due reports, and computes the time of the next one.
void StallInspector::report_waiting(Clock::time_point now) {
  StallWaiting waiting;
  warn_of_streams(now);
  next_check_ = now + std::chrono::duration_cast<Clock::duration>(
                          std::chrono::duration<double>(options_.times.warning));
  for (Submission* one = core_->newest(); one != nullptr; one = one->older) {
    if (one->is_trial || one->is_held) continue;  // held: only other ranks wait for it
    const double age = age_of(*one, now);
    const bool due = age >= options_.times.report_after(one->stall_reports);
    if (due && waiting.entries.size() < kMaxNames) {
      StallName name{one->process_set, name_text(*one), {}};
      if (is_message(*one) && one->message.peer >= 0) name.awaited.push_back(one->message.peer);
      if (one->group.members != nullptr) name.awaited = one->group.members->ranks;
      if (is_of_members(one->request.op)) {
        const auto members = announcers_of(one->request);
        name.awaited.assign(members.begin(), members.end());
      }
      waiting.entries.push_back({std::move(name), one->request.op, age});
      // Report only once now, also if several report times have passed.
      for (uint32_t i = 0;
           i < kMostReports && options_.times.report_after(one->stall_reports) <= age; ++i) {
        ++one->stall_reports;
      }
    }
    const double left = options_.times.report_after(one->stall_reports) - age;
    next_check_ = std::min(next_check_, now + std::chrono::duration_cast<Clock::duration>(
                                                  std::chrono::duration<double>(left)));
  }
  if (waiting.entries.empty()) return;
  ByteWriter out;
  encode(waiting, out);
  core_->to_root(ServiceId::kStall, out.view());
}

void StallInspector::receive(int32_t from, ByteView message) {
  if (Status status = handle(from, message); !status.ok()) {
    log::warning(status.with_context(cat("rank ", from)).message());
  }
}

Status StallInspector::handle(int32_t from, ByteView message) {
  StallMessageKind kind{};
  HVD_RETURN_IF_ERROR(peek_kind(message, &kind));
  if (kind == StallMessageKind::kAsk) {
    StallAsk ask;
    HVD_RETURN_IF_ERROR(decode(message, &ask));
    // Do not answer while the job ends: the end has its own error.
    if (!core_->over()) answer(ask);
    return {};
  }
  if (!inquiry_) return invalid_argument("it takes this rank for the root");
  if (kind == StallMessageKind::kHello) {
    StallHello hello;
    HVD_RETURN_IF_ERROR(decode(message, &hello));
    inquiry_->hello(from, std::move(hello));
  } else if (kind == StallMessageKind::kWaiting) {
    StallWaiting waiting;
    HVD_RETURN_IF_ERROR(decode(message, &waiting));
    inquiry_->waiting(from, waiting, Clock::now());
  } else {
    StallAnswer answer;
    HVD_RETURN_IF_ERROR(decode(message, &answer));
    inquiry_->answer(from, std::move(answer));
  }
  return {};
}

StallState StallInspector::state_of(const StallName& name) const {
  if (!core_->is_member(name.process_set)) return StallState::kExcused;
  bool joined = false;
  for (const Submission* one = core_->newest(); one != nullptr; one = one->older) {
    if (one->process_set != name.process_set || one->is_held) continue;
    if (name_text(*one) == name.name) {
      return one->planned ? StallState::kRunning : StallState::kWaiting;
    }
    joined |= one->request.op == HVD_JOIN;
  }
  if (!name.awaits(options_.rank)) return StallState::kExcused;
  return joined ? StallState::kExcused : StallState::kMissing;
}

void StallInspector::answer(const StallAsk& ask) {
  StallAnswer answer;
  answer.inquiry = ask.inquiry;
  for (const StallName& name : ask.names) answer.states.push_back(state_of(name));
  const LastSubmission& last = core_->last_submission();
  if (name_text(last) != kStartName) {
    answer.last_name = name_text(last);
    answer.last_op = last.op;
    answer.last_seconds = seconds_of(Clock::now() - last.when);
    if (last.program != nullptr) answer.last_program = last.program;
  }
  const auto has = [&states = answer.states](StallState state) {
    return std::find(states.begin(), states.end(), state) != states.end();
  };
  const bool misses = has(StallState::kMissing), waits = has(StallState::kWaiting);
  std::string stack;
  if (misses || waits) stack = main_thread_stack(options_.stack);
  if (waits) answer.place = user_place(stack);
  if (misses && stack.empty()) answer.note = main_thread_note();
  if (misses) answer.stack = std::move(stack);
  ByteWriter out;
  encode(answer, out);
  core_->to_root(ServiceId::kStall, out.view());
}

void StallInspector::publish(const StallReport& report) {
  ++reports_;
  core_->instruments().metrics->count(Counter::kStalls);
  log::write(report.fatal() ? log::Level::kError : log::Level::kWarning, text_of(report));
  if (!options_.report_path.empty()) {
    const double epoch =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const std::string line = json_of(report, epoch) + "\n";
    const UniqueFd file = open_report();
    const ssize_t written = file ? ::write(file.get(), line.data(), line.size()) : 0;
    if (file && written != static_cast<ssize_t>(line.size())) {
      go_on_without_report(
          system_error(cat("cannot write to ", shown_report()), written < 0 ? errno : ENOSPC));
    }
  }
  if (report.fatal()) core_->fail(cause_of(report));
}

}  // namespace hvd::runtime
