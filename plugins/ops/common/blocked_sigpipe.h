// Blocks SIGPIPE in the current thread, and in the threads that it starts, while this object lives. A
// library may write to the connection of a member that has ended: the write then fails with EPIPE, and the
// signal does not end the process. The thread of a library uses it, and Gloo's device when it opens.
#pragma once

#include <signal.h>

namespace hvd::ops {

class BlockedSigpipe {
 public:
  BlockedSigpipe() {
    sigset_t signals;
    ::sigemptyset(&signals);
    ::sigaddset(&signals, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~BlockedSigpipe() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSigpipe(const BlockedSigpipe&) = delete;
  BlockedSigpipe& operator=(const BlockedSigpipe&) = delete;

 private:
  sigset_t before_;
};

}  // namespace hvd::ops
