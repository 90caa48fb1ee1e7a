#include "base/fork_guard.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <utility>

namespace hvd {
namespace {

// Has a fixed size, since a forked child must not allocate. When the table is full, children keep further descriptors.
class Table {
 public:
  static Table& instance() {
    static Table table;
    return table;
  }
  // Threads that change entries hold the lock as readers. A fork is the writer, so no change is in progress.
  void lock_shared() { ::pthread_rwlock_rdlock(&lock_); }
  void unlock_shared() { ::pthread_rwlock_unlock(&lock_); }

  void add(int fd) {
    for (auto& entry : entries_) {
      int none = 0;
      if (entry.load(std::memory_order_relaxed) == 0 &&
          entry.compare_exchange_strong(none, fd + 1)) {
        return;
      }
    }
  }
  void remove(int fd) {
    for (auto& entry : entries_) {
      int mine = fd + 1;
      if (entry.load(std::memory_order_relaxed) == mine && entry.compare_exchange_strong(mine, 0)) {
        return;
      }
    }
  }
  // Returns 1 in the first process, and 1 more in each generation of children.
  uint32_t process() const { return process_.load(std::memory_order_relaxed); }

 private:
  Table() {
    ::pthread_atfork([] { ::pthread_rwlock_wrlock(&instance().lock_); },
                     [] { ::pthread_rwlock_unlock(&instance().lock_); },
                     [] { instance().begin_child(); });
  }
  void begin_child() {
    // Initialise the lock again, since the threads that waited for it exist only in the parent.
    ::pthread_rwlock_unlock(&lock_);
    lock_ = PTHREAD_RWLOCK_INITIALIZER;
    process_.fetch_add(1, std::memory_order_relaxed);
    for (auto& entry : entries_) {
      const int value = entry.exchange(0);
      if (value != 0) ::close(value - 1);
    }
  }

  pthread_rwlock_t lock_ = PTHREAD_RWLOCK_INITIALIZER;
  std::atomic<uint32_t> process_{1};
  // The descriptor plus one; 0 is a free entry.
  std::array<std::atomic<int>, 4096> entries_{};
};

}  // namespace

NoFork::NoFork() { Table::instance().lock_shared(); }
NoFork::~NoFork() { Table::instance().unlock_shared(); }

uint32_t process_after_forks() { return Table::instance().process(); }

GuardedFd::GuardedFd(UniqueFd fd) {
  if (!fd) return;
  const NoFork hold;
  process_ = Table::instance().process();
  fd_ = fd.release();
  Table::instance().add(fd_);
}

GuardedFd::GuardedFd(GuardedFd&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), process_(other.process_) {}

GuardedFd& GuardedFd::operator=(GuardedFd&& other) noexcept {
  if (this == &other) return *this;
  reset();
  fd_ = std::exchange(other.fd_, -1);
  process_ = other.process_;
  return *this;
}

void GuardedFd::reset() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0) return;
  const NoFork hold;
  if (process_ != Table::instance().process()) return;
  Table::instance().remove(fd);
  ::close(fd);
}

}  // namespace hvd
