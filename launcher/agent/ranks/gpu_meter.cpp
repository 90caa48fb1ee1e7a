#include "launcher/agent/ranks/gpu_meter.h"

#include <utility>

#include "base/text.h"
#include "launcher/program/program.h"

namespace hvd::launcher {
namespace {

constexpr double kSecondsToAnswer = 3;
constexpr double kSecondsBetween = 5;
constexpr double kSecondsAfterFailure = 60;
constexpr double kSecondsToUse = 30;
constexpr double kSecondsToStop = 1;
constexpr char kProgram[] = "nvidia-smi";

}  // namespace

void GpuMeter::look(const RankCommand& like) {
  if (asked_ || !next_.passed()) return;
  ended_.reset();
  const auto found = find_program(kProgram, like.working_directory,
                                  std::string(value_of(like.environment, "PATH")));
  next_ = Deadline::after_seconds(found.ok() ? kSecondsBetween : kSecondsAfterFailure);
  if (!found.ok()) return;
  RankCommand command = like;
  command.path = "/bin/sh";
  command.arguments = {"sh", "-c", gpu_use_command(*found)};
  command.has_input = false;
  auto started = HelperCommand::start(
      loop_, command, [this](const HelperCommandOutcome& outcome) { take(outcome); });
  if (!started.ok()) return;
  asked_ = *std::move(started);
  limit_ = Deadline::after_seconds(kSecondsToAnswer);
}

void GpuMeter::take(const HelperCommandOutcome& outcome) {
  ended_ = std::move(asked_);
  limit_ = Deadline::never();
  use_ = outcome.status == 0 ? parse_gpu_use(outcome.output) : GpuUse{};
  use_until_ = Deadline::after_seconds(kSecondsToUse);
  if (outcome.status == 0)
    why_.clear();
  else if (!next_.is_never())
    next_ = Deadline::after_seconds(kSecondsAfterFailure);
  taken_();
}

const GpuUse& GpuMeter::use() const {
  static const GpuUse kUnknown;
  return use_until_.passed() ? kUnknown : use_;
}

void GpuMeter::stop() {
  if (std::exchange(next_, Deadline::never()).is_never() || !is_asking()) return;
  limit_ = Deadline::after_seconds(kSecondsToStop);
  asked_->kill();
}

void GpuMeter::on_reaped(pid_t pid, int status) {
  if (asked_) asked_->on_reaped(pid, status);
}

// A program that waits for the driver may be beyond SIGKILL: it is left alone until it ends.
void GpuMeter::on_deadline() {
  limit_ = Deadline::never();
  use_ = {};
  why_ = cat(kProgram, " has not answered for ", kSecondsToAnswer,
             " s; what ranks use of its GPUs is not shown");
  asked_->kill();
}

}  // namespace hvd::launcher
