// Blocks SIGPIPE in the current thread, and in threads started by it, during its lifetime. A library
// may write to the connection of a member that has ended: the write then fails with EPIPE, and the
// signal does not end the process. LibraryThread uses this class, and so does the code that opens Gloo's device.
#pragma once

#include <signal.h>

#include <ctime>

namespace hvd::ops {

class BlockedSigpipe {
 public:
  BlockedSigpipe() {
    ::sigemptyset(&sigpipe_);
    ::sigaddset(&sigpipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~BlockedSigpipe() {
    if (::sigismember(&before_, SIGPIPE) != 0) return;
    // A signal that arrived meanwhile is pending for this thread: take it before unblocking.
    const timespec at_once{};
    while (::sigtimedwait(&sigpipe_, nullptr, &at_once) == SIGPIPE) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSigpipe(const BlockedSigpipe&) = delete;
  BlockedSigpipe& operator=(const BlockedSigpipe&) = delete;

 private:
  sigset_t sigpipe_;
  sigset_t before_;
};

}  // namespace hvd::ops
