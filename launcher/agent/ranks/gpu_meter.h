// Queries nvidia-smi, or rocm-smi on a host without nvidia-smi, for the use of this host's GPUs by processes: on
// request, at most every 5 s. After a failed query, the next query is a minute later. Samples owns this object. Lives
// on the agent's loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "launcher/agent/ranks/gpu_use.h"
#include "launcher/agent/ranks/helper_command.h"
#include "launcher/agent/ranks/rank_process.h"
#include "net/event_loop.h"

namespace hvd::launcher {

struct GpuProgram;

class GpuMeter {
 public:
  // `taken`: called when the program has ended and use() returns the result.
  GpuMeter(net::EventLoop& loop, std::function<void()> taken)
      : loop_(loop), taken_(std::move(taken)) {}

  // Starts a query, unless the last result is recent or this host has neither program. `like`: how ranks are started.
  void look(const RankCommand& like);
  bool is_asking() const { return asked_ != nullptr && !limit_.is_never(); }
  // Returns readings of the last half minute; empty if there are none.
  const GpuUse& use() const;
  // Stops querying, and ends a running program: is_asking() returns true until it has ended, for at most a second.
  void stop();
  // Returns why the use of the host's GPUs is not known: a sentence without the host's name; or empty.
  const std::string& why() const { return why_; }

  // Call for every reaped process that is not a rank.
  void on_reaped(pid_t pid, int status);
  Deadline deadline() const { return limit_; }
  void on_deadline();

 private:
  void take(const HelperCommandOutcome& outcome);

  net::EventLoop& loop_;
  const std::function<void()> taken_;
  std::unique_ptr<HelperCommand> asked_,
      ended_;                            // an ended query, kept because take() runs in its callback
  const GpuProgram* program_ = nullptr;  // the program of the last query
  Deadline limit_ = Deadline::never();
  Deadline next_ = Deadline::after_seconds(0);  // when the next query is allowed
  GpuUse use_;
  Deadline use_until_ = Deadline::after_seconds(0);
  std::string why_;
};

}  // namespace hvd::launcher
