// Watches the script that started a detached job (--detach), if a scheduler ends the job when this script ends. Names
// the script's end as the cause if the job ends within 5 s of it. Other jobs watch nothing.

#include <chrono>
#include <optional>

#include "launcher/observe/parts.h"
#include "launcher/spawn/child_process.h"
#include "launcher/state/detached_run.h"

namespace hvd::launcher {
namespace {

// The time after the end of a batch script in which a scheduler may end the script's processes.
constexpr std::chrono::seconds kEndOfScript{5};

class ScriptWatch : public JobPart {
 public:
  explicit ScriptWatch(PartLaunch& launch) : launch_(launch), watch_(launch.executor()) {}

  void on(const JobEvent& event) override;
  net::Task<void> end() override;

 private:
  void begin();

  PartLaunch& launch_;
  ExitWatch watch_;
  std::optional<Clock::time_point> script_ended_, job_ends_;
};

void ScriptWatch::on(const JobEvent& event) {
  if (std::holds_alternative<Starting>(event) && launch_.options().script) begin();
  if (std::holds_alternative<JobEnding>(event) && !job_ends_) job_ends_ = Clock::now();
}

void ScriptWatch::begin() {
  const EndingScript& script = *launch_.options().script;
  const auto note = [part = shared_from_this(), this] { script_ended_ = Clock::now(); };
  const Status watched = watch_.begin(static_cast<pid_t>(script.pid), note);
  // Only for the first launch: a later launch may begin long after the script has ended, and the end of the script is
  // then not the cause of the job's end.
  if (launch_.is_first() && (!watched.ok() || has_ended(script))) note();
}

net::Task<void> ScriptWatch::end() {
  is_over_ = true;
  watch_.close();
  if (script_ended_ && job_ends_ && *job_ends_ < *script_ended_ + kEndOfScript)
    launch_.script_ended(launch_.options().script->name);
  co_return;
}

}  // namespace

std::shared_ptr<JobPart> script_watch(PartLaunch& launch) {
  return std::make_shared<ScriptWatch>(launch);
}

}  // namespace hvd::launcher
