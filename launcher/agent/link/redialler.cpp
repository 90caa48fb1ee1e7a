#include "launcher/agent/link/redialler.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace hvd::launcher {

namespace {

constexpr double kFirstPause = 0.1;
constexpr double kLongestPause = 1;
// A port at which nothing listens for this long has lost its launcher.
constexpr std::chrono::seconds kRefused{5};

}  // namespace

// The thread may outlive the Redialler.
struct Redialler::Shared {
  Mutex mutex;
  std::optional<Result<Returned>> result HVD_GUARDED_BY(mutex);
};

void Redialler::begin() {
  refused_since_.reset();
  pause_ = kFirstPause;
  if (!shared_) dial_at_ = Deadline::after_seconds(0);
}

void Redialler::continue_later() {
  dial_at_ = Deadline::after_seconds(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
}

void Redialler::stop() {
  if (shared_) loop_.unwatch(ended_.get());
  shared_.reset();
  ended_.reset();
  dial_at_ = Deadline::never();
}

void Redialler::on_deadline() {
  if (!dial_at_.passed()) return;
  dial_at_ = Deadline::never();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return continue_later();
  ended_.reset(ends[0]);
  shared_ = std::make_shared<Shared>();
  loop_.watch(ends[0], EPOLLIN, [this](uint32_t) { on_result(); });
  auto task = [shared = shared_, dial = dial_, ended = UniqueFd(ends[1])]() mutable {
    auto result = dial();
    const MutexLock lock(shared->mutex);
    shared->result.emplace(std::move(result));
    ended.reset();
  };
  try {
    std::thread(std::move(task)).detach();  // the agent never waits for it, not even to end
  } catch (const std::system_error&) {      // the limit of threads is reached
    stop();
    continue_later();
  }
}

void Redialler::on_result() {
  loop_.unwatch(ended_.get());
  ended_.reset();
  const auto shared = std::exchange(shared_, nullptr);
  const MutexLock lock(shared->mutex);
  Result<Returned>& result = *shared->result;
  if (result.ok()) return on_dialled_(std::move(result));
  if (result.status().code() != Code::kNotFound) {
    refused_since_.reset();
  } else if (!refused_since_) {
    refused_since_ = Clock::now();
  } else if (Clock::now() - *refused_since_ >= kRefused) {
    return on_dialled_(result.status());
  }
  continue_later();
}

}  // namespace hvd::launcher
