// Descriptors that a forked child of this process must not keep: while a child holds a socket open,
// the peer does not see the death of the parent. A child made by fork() closes them at once. The list
// is global to the process, like fork handlers. Any thread.
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace hvd {

// While one lives, a fork waits: what is opened and guarded under it is one step to a child. May be
// nested; holds no longer than a few system calls that do not wait.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
};

// Differs between a process and its child, as getpid() does, and costs no system call.
uint32_t process_after_forks();

// Owns a descriptor that a forked child does not inherit: the child closes it. In the child the object
// owns nothing, and another descriptor may have the number.
class GuardedFd {
 public:
  GuardedFd() = default;
  // To leave no gap, open it under a NoFork that still lives here.
  explicit GuardedFd(UniqueFd fd);
  GuardedFd(GuardedFd&& other) noexcept;
  GuardedFd& operator=(GuardedFd&& other) noexcept;
  ~GuardedFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
  uint32_t process_ = 0;
};

}  // namespace hvd
