// Passes a connection from a new agent process to the running agent of the same session. When the launcher has repeated
// the command that started the agent, the new process passes its standard input and output through an abstract Unix
// socket whose name contains the session. A user who does not know the session cannot guess the socket's name.
#pragma once

#include <functional>

#include "base/unique_fd.h"
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

// The new process's side: passes standard input and output to the agent of the session. Returns the exit status
// of this process when the agent no longer needs the connection. If the agent does not exist, informs the
// launcher.
int hand_over(const Reattach& order);

}  // namespace hvd::launcher
