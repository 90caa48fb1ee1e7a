// The epoll set on which the progress thread sleeps. Owns a doorbell (eventfd), and holds the
// descriptors that plugins watch. Any thread may watch, unwatch and ring. The holder of the progress
// lock dispatches.
#pragma once

#include <map>
#include <memory>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::runtime {

class EventSet {
 public:
  static Result<std::unique_ptr<EventSet>> create();

  Status watch(int fd, void (*callback)(void*), void* argument);
  void unwatch(int fd);
  void ring();

  // Blocks until something is ready or the time passed. Several threads may wait at once.
  void wait(Clock::time_point until);
  // Calls back for what is ready now, and silences the doorbell. Never waits.
  void dispatch();

 private:
  struct Watch {
    void (*callback)(void*);
    void* argument;
  };
  EventSet(UniqueFd epoll, UniqueFd doorbell)
      : epoll_(std::move(epoll)), doorbell_(std::move(doorbell)) {}

  UniqueFd epoll_;
  UniqueFd doorbell_;
  Mutex mutex_;
  std::map<int, Watch> watches_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::runtime
