#include "launcher/agent/loop/poll_loop.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

namespace hvd::launcher {

namespace {

// Packs the descriptor and part of the id into epoll's 64 bits.
uint64_t pack(int fd, uint64_t id) { return id << 32 | static_cast<uint32_t>(fd); }

}  // namespace

Result<PollLoop> PollLoop::make() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("cannot make an epoll descriptor", errno);
  return PollLoop(std::move(epoll));
}

bool PollLoop::watch(int fd, uint32_t events, Callback callback) {
  const uint64_t id = next_id_++ & 0xffffffff;
  epoll_event event{.events = events, .data = {.u64 = pack(fd, id)}};
  if (events != 0 && ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return false;
  watches_[fd] = {id, events, std::move(callback)};
  return true;
}

void PollLoop::change(int fd, uint32_t events) {
  const auto found = watches_.find(fd);
  if (found == watches_.end() || found->second.events == events) return;
  epoll_event event{.events = events, .data = {.u64 = pack(fd, found->second.id)}};
  // A descriptor without events must leave epoll, which would report a hang-up repeatedly.
  const int operation = events == 0                 ? EPOLL_CTL_DEL
                        : found->second.events == 0 ? EPOLL_CTL_ADD
                                                    : EPOLL_CTL_MOD;
  ::epoll_ctl(epoll_.get(), operation, fd, &event);
  found->second.events = events;
}

void PollLoop::forget(int fd) {
  change(fd, 0);
  watches_.erase(fd);
}

void PollLoop::turn(Deadline deadline) {
  std::array<epoll_event, 64> events;
  const int count =
      ::epoll_wait(epoll_.get(), events.data(), events.size(), deadline.poll_timeout());
  for (int i = 0; i < count; ++i) {
    const int fd = static_cast<int>(events[static_cast<size_t>(i)].data.u64 & 0xffffffff);
    const uint64_t id = events[static_cast<size_t>(i)].data.u64 >> 32;
    const auto found = watches_.find(fd);
    if (found == watches_.end() || found->second.id != id) continue;
    // Call a copy, since the callback may forget() its own descriptor.
    const Callback callback = found->second.callback;
    callback(events[static_cast<size_t>(i)].events);
  }
}

}  // namespace hvd::launcher
