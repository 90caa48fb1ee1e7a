#include "launcher/agent/host/blocking_call.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace hvd::launcher {

bool BlockingCall::start(std::function<void()> work, std::function<void()> done) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  ended_.reset(ends[0]);
  const auto has_ended = std::make_shared<std::atomic<bool>>(false);
  auto task = [work = std::move(work), has_ended, end = UniqueFd(ends[1])]() mutable {
    work();
    has_ended->store(true, std::memory_order_release);
    end.reset();
  };
  const auto on_readable = [this, has_ended, done = std::move(done)](uint32_t) {
    if (!has_ended->load(std::memory_order_acquire)) return;
    const auto then = done;  // a copy, because the end of the watch destroys this function
    abandon();
    then();
  };
  if (!loop_.watch(ends[0], EPOLLIN, on_readable)) {
    ended_.reset();
    return false;
  }
  try {
    std::thread(std::move(task)).detach();
  } catch (const std::system_error&) {  // no more threads are allowed
    abandon();
    return false;
  }
  return true;
}

void BlockingCall::abandon() {
  if (!ended_) return;
  loop_.unwatch(ended_.get());
  ended_.reset();
}

}  // namespace hvd::launcher
