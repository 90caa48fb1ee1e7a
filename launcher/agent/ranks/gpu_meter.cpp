#include "launcher/agent/ranks/gpu_meter.h"

#include <sys/wait.h>

#include <array>
#include <optional>

#include "base/text.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {

struct GpuProgram {
  const char* name;
  std::string (*command)(const std::string& path);
  std::optional<GpuUse> (*read)(const HelperCommandOutcome& outcome);  // nothing after a failure
};

namespace {

constexpr double kSecondsToAnswer = 3;
constexpr double kSecondsBetween = 5;
constexpr double kSecondsAfterFailure = 60;
constexpr double kSecondsToUse = 30;
constexpr double kSecondsToStop = 1;

std::optional<GpuUse> read_nvidia(const HelperCommandOutcome& outcome) {
  if (outcome.status != 0) return std::nullopt;
  return parse_gpu_use(outcome.output);
}

// rocm-smi exits with 0 even without a driver, and with an error code if a GPU lacks one value: ignore the exit code.
std::optional<GpuUse> read_rocm(const HelperCommandOutcome& outcome) {
  if (!WIFEXITED(outcome.status)) return std::nullopt;
  return parse_rocm_use(outcome.output);
}

// The agent queries the first of these programs that the host has.
constexpr std::array kPrograms = {GpuProgram{"nvidia-smi", gpu_use_command, read_nvidia},
                                  GpuProgram{"rocm-smi", rocm_use_command, read_rocm}};

}  // namespace

void GpuMeter::look(const RankCommand& like) {
  if (asked_ || !next_.passed()) return;
  ended_.reset();
  std::string path;
  for (const GpuProgram& program : kPrograms) {
    const auto found = find_program(program.name, like.working_directory,
                                    std::string(value_of(like.environment, "PATH")));
    if (!found.ok()) continue;
    program_ = &program;
    path = *found;
    break;
  }
  next_ = Deadline::after_seconds(path.empty() ? kSecondsAfterFailure : kSecondsBetween);
  if (path.empty()) return;
  RankCommand command = like;
  command.path = "/bin/sh";
  command.arguments = {"sh", "-c", program_->command(path)};
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
  std::optional<GpuUse> read = program_->read(outcome);
  use_ = read ? *std::move(read) : GpuUse{};
  use_until_ = Deadline::after_seconds(kSecondsToUse);
  if (read)
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

// SIGKILL may not end a program that waits for the driver: ignore the program until it ends.
void GpuMeter::on_deadline() {
  limit_ = Deadline::never();
  use_ = {};
  why_ = cat(program_->name, " has not answered for ", kSecondsToAnswer,
             " s; what ranks use of its GPUs is not shown");
  asked_->kill();
}

}  // namespace hvd::launcher
