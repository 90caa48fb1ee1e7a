#include "runtime/progress/event_set.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <memory>

#include "base/text.h"

namespace hvd::runtime {

Result<std::unique_ptr<EventSet>> EventSet::create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("cannot create an epoll descriptor", errno);
  UniqueFd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell) return system_error("cannot create an event descriptor", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = doorbell.get();
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, doorbell.get(), &event) != 0) {
    return system_error("cannot watch the doorbell", errno);
  }
  return std::unique_ptr<EventSet>(new EventSet(std::move(epoll), std::move(doorbell)));
}

Status EventSet::watch(int fd, void (*callback)(void*), void* argument) {
  MutexLock lock(mutex_);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  const bool known = watches_.contains(fd);
  if (::epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0) {
    return system_error(cat("cannot watch descriptor ", fd), errno);
  }
  watches_[fd] = {callback, argument};
  return {};
}

void EventSet::unwatch(int fd) {
  MutexLock lock(mutex_);
  if (watches_.erase(fd) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventSet::ring() {
  const uint64_t one = 1;
  // A counter that is full rings all the same.
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.get(), &one, sizeof one);
}

void EventSet::wait(Clock::time_point until) {
  epoll_event event{};
  // Nothing is taken: level-triggered events stay for dispatch, and for other sleepers. An
  // interruption by a signal counts as a wake-up.
  [[maybe_unused]] const int count =
      ::epoll_wait(epoll_.get(), &event, 1, Deadline::at(until).poll_timeout());
}

void EventSet::dispatch() {
  epoll_event events[16];
  const int count = ::epoll_wait(epoll_.get(), events, 16, 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    if (fd == doorbell_.get()) {
      uint64_t rings = 0;
      [[maybe_unused]] const ssize_t read = ::read(fd, &rings, sizeof rings);
      continue;
    }
    Watch watch{};
    {
      MutexLock lock(mutex_);
      const auto found = watches_.find(fd);
      if (found == watches_.end()) continue;
      watch = found->second;
    }
    watch.callback(watch.argument);
  }
}

}  // namespace hvd::runtime
