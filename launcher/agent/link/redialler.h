// Connects to the launcher again after the connection broke, with growing pauses between the attempts, until an
// attempt succeeds, or until the launcher has evidently ended. LauncherLink owns this object. Lives on the agent's
// loop.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/agent/host/blocking_call.h"
#include "launcher/agent/link/link.h"
#include "net/event_loop.h"

namespace hvd::launcher {

class Redialler {
 public:
  using Dial = std::function<Result<Returned>()>;
  // `connection`: kNotFound if nothing has listened at the launcher's port for 5 s.
  using OnDialled = std::function<void(Result<Returned> connection)>;

  // `dial`: OpenedLink::redial.
  Redialler(net::EventLoop& loop, Dial dial, OnDialled on_dialled)
      : dial_(std::move(dial)), on_dialled_(std::move(on_dialled)), call_(loop) {}
  Redialler(const Redialler&) = delete;

  // Returns whether this agent connects by itself.
  explicit operator bool() const { return bool(dial_); }

  // Call when the connection has just broken: the next on_deadline() connects.
  void begin();
  // Call when the last result was not usable: connects again after a pause.
  void continue_later();
  void stop();

  // Call on_deadline() when this deadline has passed.
  Deadline deadline() const { return dial_at_; }
  void on_deadline();

 private:
  void on_result(Result<Returned>& result);

  const Dial dial_;
  const OnDialled on_dialled_;
  BlockingCall call_;
  double pause_ = 0;  // in seconds
  std::optional<Clock::time_point> refused_since_;
  Deadline dial_at_ = Deadline::never();
};

}  // namespace hvd::launcher
