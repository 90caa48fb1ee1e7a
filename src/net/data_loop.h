// The event loop of the data links: an epoll instance whose descriptor can itself be watched, so that
// one thread may block on it while another polls it. Asio cannot be polled while a thread blocks in
// it. The mesh owns it. One caller at a time.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::net {

class DataLoop {
 public:
  // The receiver of a descriptor's events. A source must outlive its registration.
  class Source {
   public:
    virtual void on_events(uint32_t events) = 0;

   protected:
    ~Source() = default;
  };

  static Result<DataLoop> open();

  // A descriptor that becomes readable when events wait for dispatch().
  int fd() const { return epoll_.get(); }
  // Registers `fd`; `events` as in epoll_ctl(2), EPOLLET included.
  Status add(int fd, uint32_t events, Source& source);
  void remove(int fd);
  // Passes pending events to their sources without waiting; returns true when there were any.
  bool dispatch();
  // Makes the loop readable once at the deadline; never() cancels that.
  void wake_at(Deadline deadline);

 private:
  DataLoop(UniqueFd epoll, UniqueFd timer);

  UniqueFd epoll_;
  UniqueFd timer_;
  int owner_;  // a forked child shares the registrations and must not change them
};

}  // namespace hvd::net
