#include "base/wait/interruption.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace hvd {

Interruption::Interruption() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Interruption::interrupt(const Status& why) {
  const MutexLock lock(mutex_);
  if (!why_.ok()) return;
  why_ = why;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(event_.get(), &one, sizeof one);
  for (const Callback& callback : callbacks_) callback(why_);
}

Interruption::Watch::Watch(Interruption* interruption, Callback callback)
    : interruption_(interruption) {
  if (interruption_ == nullptr) return;
  const MutexLock lock(interruption_->mutex_);
  if (!interruption_->why_.ok()) callback(interruption_->why_);
  place_ = interruption_->callbacks_.insert(interruption_->callbacks_.end(), std::move(callback));
}

Interruption::Watch::~Watch() {
  if (interruption_ == nullptr) return;
  const MutexLock lock(interruption_->mutex_);
  interruption_->callbacks_.erase(place_);
}

}  // namespace hvd
