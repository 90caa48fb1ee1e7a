// Descriptors that a forked child of this process must not keep: while a child holds a socket open,
// the peer does not see the death of the parent. A child made by fork() closes these descriptors at once. The list
// is global to the process, like fork handlers. Any thread.
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace hvd {

// Delays forks while an object exists, so that no fork happens between the opening of a descriptor
// and its guarding. May be nested. Keep the object only for a few system calls that do not wait.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
};

// Returns a number that differs between a process and its child, as getpid() does, without a system call.
uint32_t process_after_forks();

// Owns a descriptor that a forked child does not inherit: the child closes it. In the child, the object owns nothing,
// and another descriptor may get the number.
class GuardedFd {
 public:
  GuardedFd() = default;
  // Create a NoFork before the descriptor is opened, and keep it until this call returns: otherwise a child may inherit
  // the descriptor.
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
