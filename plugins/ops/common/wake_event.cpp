#include "ops/common/wake_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace hvd::ops {

Result<std::shared_ptr<WakeEvent>> WakeEvent::make() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) {
    return internal_error(cat("a backend cannot create the eventfd of its thread: ",
                              std::strerror(errno), "; raise the limit of open files (ulimit -n)"));
  }
  return std::make_shared<WakeEvent>(std::move(fd));
}

void WakeEvent::ring() const {
  const uint64_t one = 1;
  static_cast<void>(::write(fd(), &one, sizeof one));
}

void WakeEvent::clear() const {
  uint64_t count = 0;
  static_cast<void>(::read(fd(), &count, sizeof count));
}

WakeWatch::WakeWatch(const hvd_plugin_host& host, std::shared_ptr<WakeEvent> event)
    : host_(host), event_(std::move(event)) {
  host_.watch(
      host_.host, event_->fd(), [](void* event) { static_cast<WakeEvent*>(event)->clear(); },
      event_.get());
}

}  // namespace hvd::ops
