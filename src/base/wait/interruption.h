// Ends the waits of one thread from another thread, for example when a generation being started loses a member. The
// waiting thread creates the Interruption; any other thread may call interrupt().
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

  // Interrupts the waits. Only the first call has an effect.
  void interrupt(const Status& why);
  // Becomes readable at the interruption, for poll(2). -1 if the process could not open a descriptor.
  int fd() const { return event_.get(); }

  // Calls a callback when the interruption happens during the lifetime of the Watch: on the interrupting thread, or in
  // the Watch's constructor after an earlier interruption. The destructor waits for the end of the callback.
  class Watch {
   public:
    // If `interruption` is null, the callback is never called.
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
