#include "net/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <unordered_map>

#include "base/mutex.h"

namespace hvd::net {
namespace {

struct Watch {
  uint64_t id = 0;  // distinguishes a reused descriptor number from its former owner
  uint32_t events = 0;
  EventLoop::Callback callback;
};

// Packs the descriptor and the lower half of the id into epoll's 64 bits.
uint64_t pack(int fd, uint64_t id) { return id << 32 | static_cast<uint32_t>(fd); }

bool control(int epoll, int operation, int fd, uint32_t events, uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = pack(fd, id);
  return ::epoll_ctl(epoll, operation, fd, &event) == 0;
}

}  // namespace

struct EventLoop::Watches {
  Mutex mutex;
  std::unordered_map<int, Watch> by_fd HVD_GUARDED_BY(mutex);
  uint64_t next_id HVD_GUARDED_BY(mutex) = 1;
};

EventLoop::EventLoop(UniqueFd epoll, UniqueFd timer, UniqueFd doorbell)
    : epoll_(std::move(epoll)),
      timer_(std::move(timer)),
      doorbell_(std::move(doorbell)),
      owner_(::getpid()),
      watches_(std::make_unique<Watches>()) {}
EventLoop::EventLoop(EventLoop&&) noexcept = default;
EventLoop& EventLoop::operator=(EventLoop&&) noexcept = default;
EventLoop::~EventLoop() = default;

Result<EventLoop> EventLoop::open() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("cannot create an epoll descriptor", errno);
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) return system_error("cannot create a timer", errno);
  UniqueFd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell) return system_error("cannot create an event descriptor", errno);
  for (const UniqueFd* own : {&timer, &doorbell}) {
    if (!control(epoll.get(), EPOLL_CTL_ADD, own->get(), EPOLLIN, 0)) {
      return system_error("cannot watch the loop's own descriptors", errno);
    }
  }
  return EventLoop(std::move(epoll), std::move(timer), std::move(doorbell));
}

bool EventLoop::watch(int fd, uint32_t events, Callback callback) {
  MutexLock lock(watches_->mutex);
  const uint64_t id = watches_->next_id++ & 0xffffffff;
  const auto found = watches_->by_fd.find(fd);
  const bool is_in_epoll = found != watches_->by_fd.end() && found->second.events != 0;
  if (events != 0 || is_in_epoll) {
    const int operation = events == 0 ? EPOLL_CTL_DEL : is_in_epoll ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    bool is_watched = control(epoll_.get(), operation, fd, events, id);
    // epoll forgets a descriptor that was closed.
    if (!is_watched && errno == ENOENT && events != 0) {
      is_watched = control(epoll_.get(), EPOLL_CTL_ADD, fd, events, id);
    }
    if (!is_watched && events != 0) return false;
  }
  watches_->by_fd[fd] = {id, events, std::move(callback)};
  return true;
}

void EventLoop::change(int fd, uint32_t events) {
  if (::getpid() != owner_) return;
  MutexLock lock(watches_->mutex);
  const auto found = watches_->by_fd.find(fd);
  if (found == watches_->by_fd.end() || found->second.events == events) return;
  // A descriptor without events must leave epoll, which would report a hang-up repeatedly.
  const int operation = events == 0                 ? EPOLL_CTL_DEL
                        : found->second.events == 0 ? EPOLL_CTL_ADD
                                                    : EPOLL_CTL_MOD;
  control(epoll_.get(), operation, fd, events, found->second.id);
  found->second.events = events;
}

void EventLoop::unwatch(int fd) {
  if (::getpid() != owner_) return;
  MutexLock lock(watches_->mutex);
  const auto found = watches_->by_fd.find(fd);
  if (found == watches_->by_fd.end()) return;
  if (found->second.events != 0) control(epoll_.get(), EPOLL_CTL_DEL, fd, 0, 0);
  watches_->by_fd.erase(found);
}

void EventLoop::notify() {
  const uint64_t one = 1;
  // If the counter is full, the write fails, but the loop is readable.
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.get(), &one, sizeof one);
}

void EventLoop::wake_at(Deadline deadline) {
  itimerspec spec{};
  if (!deadline.is_never()) {
    const auto time =
        std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time().time_since_epoch());
    spec.it_value.tv_sec = static_cast<time_t>(time.count() / 1000000000);
    spec.it_value.tv_nsec = std::max<long>(static_cast<long>(time.count() % 1000000000), 1);
  }
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

void EventLoop::wait(Deadline deadline) const {
  epoll_event event{};
  [[maybe_unused]] const int count = ::epoll_wait(epoll_.get(), &event, 1, deadline.poll_timeout());
}

bool EventLoop::dispatch(int rounds) {
  // Limit the rounds, so that descriptors that are always ready do not block the caller.
  bool any = false;
  while (rounds-- > 0 && deliver(0)) any = true;
  return any;
}

bool EventLoop::deliver(int timeout) {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), timeout);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    const int fd = static_cast<int>(event.data.u64 & 0xffffffff);
    if (fd == timer_.get() || fd == doorbell_.get()) {
      uint64_t ignored = 0;
      [[maybe_unused]] const ssize_t got = ::read(fd, &ignored, sizeof ignored);
      continue;
    }
    Callback callback;
    {
      // An earlier callback of this round may have ended this watch, and this callback may end it:
      // call a copy.
      MutexLock lock(watches_->mutex);
      const auto found = watches_->by_fd.find(fd);
      if (found == watches_->by_fd.end() || found->second.id != event.data.u64 >> 32) continue;
      callback = found->second.callback;
    }
    callback(event.events);
  }
  return count > 0;
}

}  // namespace hvd::net
