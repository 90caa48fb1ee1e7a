#include "ops/common/library_thread.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace hvd::ops {
namespace {

// The delay before a library's error is reported. A broken connection is rarely the first cause of a failure, so the
// controller gets this time to report the cause.
constexpr std::chrono::seconds kGrace{2};
// After this many polls without progress, the thread yields the processor before each poll.
constexpr int kEagerPolls = 1000;
constexpr size_t kLongestError = 500;

}  // namespace

void QueuedBatch::end(const Status& status) {
  status_ = status;
  is_over_.store(true, std::memory_order_release);
}

std::optional<Status> QueuedBatch::poll() {
  if (!is_over_.load(std::memory_order_acquire)) return std::nullopt;
  return status_;
}

void LibraryThread::start() {
  thread_ = std::thread([self = shared_from_this()] { self->work(); });
}

void LibraryThread::give(Order order) {
  {
    const MutexLock lock(mutex_);
    orders_.push_back(std::move(order));
  }
  changed_.notify_all();
}

void LibraryThread::wake() {
  {
    const MutexLock lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

void LibraryThread::drain() {
  MutexLock lock(mutex_);
  changed_.wait(lock.native(),
                [this]() HVD_REQUIRES(mutex_) { return (orders_.empty() && !busy_) || ended_; });
}

void LibraryThread::begin_end() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  interrupt();
}

void LibraryThread::close() {
  begin_end();
  MutexLock lock(mutex_);
  changed_.wait(lock.native(), [this]() HVD_REQUIRES(mutex_) { return !busy_; });
}

bool LibraryThread::stop(Deadline until) {
  if (!thread_.joinable()) return true;
  begin_end();
  MutexLock lock(mutex_);
  bool ended = true;
  const auto has_ended = [this]() HVD_REQUIRES(mutex_) { return ended_; };
  if (until.is_never())
    changed_.wait(lock.native(), has_ended);
  else
    ended = changed_.wait_until(lock.native(), until.time(), has_ended);
  lock.unlock();
  if (ended) {
    thread_.join();
    return true;
  }
  const MutexLock at_memory(memory_);
  memory_is_gone_ = true;
  thread_.detach();
  return false;
}

bool LibraryThread::pause(std::chrono::microseconds time) {
  MutexLock lock(mutex_);
  return !changed_.wait_for(lock.native(), time,
                            [this]() HVD_REQUIRES(mutex_) { return closing_; });
}

Status LibraryThread::error_of(std::string_view thrown) const {
  const std::string_view text = thrown.substr(0, thrown.find('\n'));
  return aborted(
      printable(text.starts_with(title_) ? text : cat(title_, ": ", text), kLongestError));
}

void LibraryThread::work() {
  ::pthread_setname_np(::pthread_self(), name_);
  const BlockedSigpipe blocked_sigpipe;
  Status status = guarded([this] { return open_library(); });
  int idle_polls = 0;
  MutexLock lock(mutex_);
  failure_ = status;
  while (failure_.ok() && !closing_) {
    const auto has_news = [this]() HVD_REQUIRES(mutex_) {
      return closing_ || woken_ || !orders_.empty();
    };
    if (running_.empty()) {
      changed_.wait(lock.native(), has_news);
    } else if (pace().count() > 0) {
      changed_.wait_for(lock.native(), pace(), has_news);
    }
    if (closing_) break;
    woken_ = false;
    Order order{};
    if (!orders_.empty()) {
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    busy_ = true;
    lock.unlock();
    bool moved = false;
    status = guarded([&] { return turn(order, &moved); });
    order = {};
    idle_polls = moved ? 0 : idle_polls + 1;
    if (idle_polls > kEagerPolls) std::this_thread::yield();
    lock.lock();
    busy_ = false;
    if (moved || closing_) changed_.notify_all();
    failure_ = status;
  }
  const bool failed = !failure_.ok();
  if (!failed) orders_.clear();
  lock.unlock();
  if (failed) fail();
  close_library(failed, std::exchange(running_, {}));
  lock.lock();
  ended_ = true;
  changed_.notify_all();
}

Status LibraryThread::turn(const Order& order, bool* moved) {
  if (order.call) {
    *moved = true;
    HVD_RETURN_IF_ERROR(order.call());
  }
  if (order.batch) {
    *moved = true;
    running_.push_back(order.batch);
    HVD_RETURN_IF_ERROR(order.batch->start());
  } else if (!running_.empty()) {
    HVD_RETURN_IF_ERROR(look());
  }
  return advance(moved);
}

Status LibraryThread::advance(bool* moved) {
  for (auto at = running_.begin(); at != running_.end();) {
    HVD_ASSIGN_OR_RETURN(const bool is_done, (*at)->test());
    if (!is_done) {
      ++at;
      continue;
    }
    {
      const MutexLock lock(memory_);
      if (memory_is_gone_) {
        return aborted(cat(title_, " came back after the job had given it up"));
      }
      (*at)->finish();
    }
    (*at)->end({});
    event_->ring();
    at = running_.erase(at);
    *moved = true;
  }
  return {};
}

void LibraryThread::fail() {
  MutexLock lock(mutex_);
  changed_.wait_for(lock.native(), kGrace, [this]() HVD_REQUIRES(mutex_) { return closing_; });
  Batches failing = running_;
  for (;;) {
    for (const Order& order : orders_) {
      if (order.batch) failing.push_back(order.batch);
    }
    orders_.clear();
    for (const auto& batch : failing) batch->end(failure_);
    if (!failing.empty()) event_->ring();
    failing.clear();
    if (closing_) return;
    changed_.wait(lock.native(),
                  [this]() HVD_REQUIRES(mutex_) { return closing_ || !orders_.empty(); });
  }
}

Result<std::shared_ptr<WakeEvent>> WakeEvent::make() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) {
    return internal_error(cat("a backend cannot create the eventfd of its thread: ",
                              std::strerror(errno), "; raise the limit of open files (ulimit -n)"));
  }
  return std::make_shared<WakeEvent>(std::move(fd));
}

void WakeEvent::ring() const {
  const uint64_t one = 1;
  static_cast<void>(::write(fd(), &one, sizeof one));
}

void WakeEvent::clear() const {
  uint64_t count = 0;
  static_cast<void>(::read(fd(), &count, sizeof count));
}

WakeWatch::WakeWatch(const hvd_plugin_host& host, std::shared_ptr<WakeEvent> event)
    : host_(host), event_(std::move(event)) {
  host_.watch(
      host_.host, event_->fd(), [](void* event) { static_cast<WakeEvent*>(event)->clear(); },
      event_.get());
}

}  // namespace hvd::ops
