// Ends waits of one thread from another one: the start of a generation whose member is lost. The thread that
// waits makes it, and the thread that knows the reason interrupts it, once. Any thread may call.
#pragma once

#include <functional>
#include <list>

#include "base/mutex.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace hvd {

class Interruption {
 public:
  using Callback = std::function<void(const Status& why)>;

  Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // Later calls change nothing.
  void interrupt(const Status& why);
  // Readable from the interruption on, for poll(2). -1 where the process could not open a descriptor.
  int fd() const { return event_.get(); }

  // Calls back as long as it lives: on the interrupting thread, or in its constructor after an
  // interruption. Its destructor waits for the end of the callback.
  class Watch {
   public:
    // `interruption` may be nullptr: never.
    Watch(Interruption* interruption, Callback callback);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    Interruption* const interruption_;
    std::list<Callback>::iterator place_;
  };

 private:
  UniqueFd event_;
  Mutex mutex_;
  Status why_ HVD_GUARDED_BY(mutex_);
  std::list<Callback> callbacks_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd
