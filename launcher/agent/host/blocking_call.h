// Runs a function that may block for a long time, such as a scan of 100,000 files or a connection attempt, on a
// detached thread, so that the agent answers pings meanwhile. The agent never waits for this thread, even at exit.
// Lives on the agent's loop.
#pragma once

#include <functional>

#include "base/unique_fd.h"
#include "net/event_loop.h"

namespace hvd::launcher {

class BlockingCall {
 public:
  explicit BlockingCall(net::EventLoop& loop) : loop_(loop) {}
  ~BlockingCall() { abandon(); }
  BlockingCall(const BlockingCall&) = delete;

  // Calls `work` on the thread and then `done` on the loop. `work` owns or shares all data that it uses, because the
  // thread may outlive this object. Returns false and calls neither if the host has no free thread or descriptor.
  // One call at a time.
  bool start(std::function<void()> work, std::function<void()> done);
  bool is_running() const { return static_cast<bool>(ended_); }
  // Prevents a later call of `done`.
  void abandon();

 private:
  net::EventLoop& loop_;
  UniqueFd ended_;  // readable when the thread has ended
};

}  // namespace hvd::launcher
