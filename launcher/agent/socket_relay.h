// Copies bytes between two connected stream sockets, in both directions, without parsing. Reads a socket again only
// after the other socket has accepted the earlier bytes. PmixHelper owns this object. Lives on the agent's loop.
#pragma once

#include <functional>
#include <string>

#include "base/unique_fd.h"
#include "net/event_loop.h"

namespace hvd::launcher {

class SocketRelay {
 public:
  // `on_end`: called once, on the loop, when the two sockets have ended or one of them is broken. May destroy this
  // object.
  SocketRelay(net::EventLoop& loop, UniqueFd first, UniqueFd second, std::function<void()> on_end);
  ~SocketRelay();
  SocketRelay(const SocketRelay&) = delete;

 private:
  struct End {
    UniqueFd socket;
    std::string unsent = {};    // bytes read from the socket, for the other end
    bool has_ended = false;     // the socket has no more bytes
    bool is_passed_on = false;  // the other end was shut down for writing
  };

  void on_ready();
  static bool move(End& from, End& to);

  net::EventLoop& loop_;
  End ends_[2];
  std::function<void()> on_end_;
};

}  // namespace hvd::launcher
