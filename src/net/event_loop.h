// An epoll loop. The mesh owns a loop for its links, a runtime owns a loop for sleeping threads and plugins'
// descriptors, and the agent owns a loop. Unlike with an Asio loop, another loop can watch this loop, and several
// threads may wait on it. Any thread may call watch, change, unwatch and notify; one thread at a time dispatches.
// Owns the callbacks, not the descriptors.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::net {

class EventLoop {
 public:
  // The loop calls a Callback with the epoll(7) events of a descriptor.
  using Callback = std::function<void(uint32_t events)>;

  static Result<EventLoop> open();
  EventLoop(EventLoop&&) noexcept;
  EventLoop& operator=(EventLoop&&) noexcept;
  ~EventLoop();

  // Returns a descriptor that becomes readable when events wait for dispatch().
  int fd() const { return epoll_.get(); }

  // Calls back for `events`, as in epoll_ctl(2) (EPOLLET included), and for errors and hang-ups, until change()
  // or unwatch(). With `events` 0, does not call back before change(). Replaces an earlier watch of the
  // descriptor. Returns false, and sets errno, if epoll cannot watch the descriptor, for example a regular file.
  bool watch(int fd, uint32_t events, Callback callback);
  void change(int fd, uint32_t events);
  // Call this before closing the descriptor.
  void unwatch(int fd);

  // Makes the loop readable until the next dispatch.
  void notify();
  // Makes the loop readable once, at the deadline; never() cancels the deadline. For the dispatching thread.
  void wake_at(Deadline deadline);

  // Blocks until events wait for dispatch(), at most until the deadline. Leaves the events in the loop, so all
  // waiting threads return. Only for loops whose watches do not use EPOLLET. A signal ends the wait.
  void wait(Deadline deadline) const;
  // Calls the callbacks of ready descriptors, without waiting. Checks for them up to `rounds` times. Returns true
  // if any descriptor was ready.
  bool dispatch(int rounds = 1);
  // Waits for events, at most until the deadline, and calls the callbacks of ready descriptors.
  void turn(Deadline deadline) { deliver(deadline.poll_timeout()); }

 private:
  struct Watches;

  EventLoop(UniqueFd epoll, UniqueFd timer, UniqueFd doorbell);
  bool deliver(int timeout);

  UniqueFd epoll_;
  UniqueFd timer_;
  UniqueFd doorbell_;
  pid_t owner_;  // a forked child shares the registrations and must not change them
  std::unique_ptr<Watches> watches_;
};

}  // namespace hvd::net
