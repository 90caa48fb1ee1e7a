// The agent's event loop: epoll over descriptors, in one thread, without timers. Owns the callbacks,
// not the descriptors.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::launcher {

class PollLoop {
 public:
  // Called with the epoll(7) events of a descriptor.
  using Callback = std::function<void(uint32_t)>;

  static Result<PollLoop> make();

  // Calls back for `events` (EPOLLIN, EPOLLOUT), and for errors and hang-ups, until change() or
  // forget(). Call forget() before the descriptor is closed. Returns false for a regular file,
  // which epoll cannot watch.
  bool watch(int fd, uint32_t events, Callback callback);
  void change(int fd, uint32_t events);
  void forget(int fd);
  // Waits for readiness, at most until the deadline, and calls back.
  void turn(Deadline deadline);

 private:
  struct Watch {
    uint64_t id;  // distinguishes a reused descriptor number from its former owner
    uint32_t events;
    Callback callback;
  };

  explicit PollLoop(UniqueFd epoll) : epoll_(std::move(epoll)) {}

  UniqueFd epoll_;
  std::unordered_map<int, Watch> watches_;
  uint64_t next_id_ = 1;
};

}  // namespace hvd::launcher
