// Mutexes whose use clang checks: write HVD_GUARDED_BY(mutex_) after a member, and
// HVD_REQUIRES(mutex_) after a function that needs the lock. Mutex and MutexLock cost as much as
// std::mutex and std::unique_lock.
#pragma once

#include <mutex>

#include "base/platform_thread_safety.h"

namespace hvd {

class HVD_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  void lock() HVD_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  void unlock() HVD_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }
  bool try_lock() HVD_THREAD_SAFETY(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex during its lifetime, except between unlock() and lock().
class HVD_THREAD_SAFETY(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HVD_THREAD_SAFETY(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  ~MutexLock() HVD_THREAD_SAFETY(release_capability()) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() HVD_THREAD_SAFETY(acquire_capability()) { lock_.lock(); }
  void unlock() HVD_THREAD_SAFETY(release_capability()) { lock_.unlock(); }
  // Returns the lock for a wait of std::condition_variable, which returns with the mutex locked.
  std::unique_lock<std::mutex>& native() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace hvd
