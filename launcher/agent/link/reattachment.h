// Passes a connection from a new agent process to the running agent of the same session. When the launcher has repeated
// the command that started the agent, the new process passes its standard input and output through an abstract Unix
// socket whose name contains the session. A user who does not know the session cannot guess the socket's name.
#pragma once

#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/agent/host/blocking_call.h"
#include "launcher/agent/link/link.h"
#include "net/event_loop.h"

namespace hvd::launcher {

// The running agent's side. Owns the listener and the newest process that passes a connection. Lives on the
// agent's loop.
class Reattachment {
 public:
  // `lifetime_fd`: closing it ends the process that passed the connection.
  using OnConnection = std::function<void(Returned returned, UniqueFd lifetime_fd)>;

  explicit Reattachment(net::EventLoop& loop) : loop_(loop) {}
  ~Reattachment() { close(); }
  Reattachment(const Reattachment&) = delete;

  Status listen(const SessionId& session, OnConnection on_connection);
  bool is_listening() const { return bool(listener_); }
  // Call after a descriptor was closed: accept_all() may have stopped because no descriptor was free.
  void accept_again();
  void close();

 private:
  void on_caller(UniqueFd caller);
  void on_packet();

  net::EventLoop& loop_;
  OnConnection on_connection_;
  UniqueFd listener_;
  UniqueFd caller_;  // the newest process that passes a connection
};

// The new process's side: passes standard input and output to the agent of the session. Blocks until the agent has
// closed this connection or has ended. Returns the exit status of this process: 0, or at once 1 after an error. If the
// agent does not exist, informs the launcher.
int hand_over(const Reattach& order);

// Connects to the launcher again after the connection broke, with growing pauses between the attempts, until an
// attempt succeeds, or until the launcher has evidently ended. LauncherLink owns this object. Lives on the agent's
// loop.
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

  // Call when the connection has broken, or the launcher is silent: the next on_deadline() connects.
  void begin();
  // Call when the last result was not usable: connects again after a pause.
  void continue_later();
  void stop();

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
