// The event (eventfd) by which a library thread wakes the progress thread. LibraryThread rings it.
#pragma once

#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"
#include "horovod/plugin.h"

namespace hvd::ops {

// Shared with the library thread, which may outlive the backend when the library hangs.
class WakeEvent {
 public:
  static Result<std::shared_ptr<WakeEvent>> make();
  explicit WakeEvent(UniqueFd fd) : fd_(std::move(fd)) {}
  // Any thread.
  void ring() const;
  void clear() const;
  int fd() const { return fd_.get(); }

 private:
  const UniqueFd fd_;
};

// Lets the event wake the progress thread, from construction to destruction. The backend owns one.
class WakeWatch {
 public:
  WakeWatch(const hvd_plugin_host& host, std::shared_ptr<WakeEvent> event);
  ~WakeWatch() { host_.unwatch(host_.host, event_->fd()); }
  WakeWatch(const WakeWatch&) = delete;
  WakeWatch& operator=(const WakeWatch&) = delete;

 private:
  const hvd_plugin_host& host_;
  const std::shared_ptr<WakeEvent> event_;
};

}  // namespace hvd::ops
