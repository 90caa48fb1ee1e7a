#include "net/data_loop.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace hvd::net {

DataLoop::DataLoop(UniqueFd epoll, UniqueFd timer)
    : epoll_(std::move(epoll)), timer_(std::move(timer)), owner_(::getpid()) {}

Result<DataLoop> DataLoop::open() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("cannot create an epoll instance", errno);
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) return system_error("cannot create a timer", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, timer.get(), &event) != 0) {
    return system_error("cannot watch a timer", errno);
  }
  return DataLoop(std::move(epoll), std::move(timer));
}

Status DataLoop::add(int fd, uint32_t events, Source& source) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &source;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return system_error("cannot watch a descriptor", errno);
  }
  return {};
}

void DataLoop::remove(int fd) {
  if (::getpid() == owner_) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

bool DataLoop::dispatch() {
  // The loop takes one event at a time: a source may end other sources, which get no events then.
  // The bound keeps descriptors that are always ready from holding the caller here.
  bool any = false;
  for (int rounds = 0; rounds < 64; ++rounds) {
    epoll_event event{};
    if (::epoll_wait(epoll_.get(), &event, 1, 0) <= 0) return any;
    any = true;
    if (event.data.ptr == nullptr) {
      uint64_t expirations = 0;
      [[maybe_unused]] const ssize_t got = ::read(timer_.get(), &expirations, sizeof expirations);
      continue;
    }
    static_cast<Source*>(event.data.ptr)->on_events(event.events);
  }
  return any;
}

void DataLoop::wake_at(Deadline deadline) {
  itimerspec spec{};
  if (!deadline.is_never()) {
    const auto time =
        std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time().time_since_epoch());
    spec.it_value.tv_sec = static_cast<time_t>(time.count() / 1000000000);
    spec.it_value.tv_nsec = std::max<long>(static_cast<long>(time.count() % 1000000000), 1);
  }
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

}  // namespace hvd::net
