// A mutex for coroutines of one loop, which enter a section one at a time. A turn ends when its object
// is destroyed, also if its coroutine is cancelled.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "net/notification.h"

namespace hvd::net {

class Turns : public std::enable_shared_from_this<Turns> {
 public:
  class Turn {
   public:
    explicit Turn(std::shared_ptr<Turns> turns) : turns_(std::move(turns)) {}
    Turn(Turn&&) = default;
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (!turns_) return;
      turns_->is_taken_ = false;
      turns_->ended_.notify();
    }

   private:
    std::shared_ptr<Turns> turns_;
  };

  explicit Turns(const asio::any_io_executor& executor) : ended_(executor) {}

  // Returns nothing if the waiting coroutine was cancelled.
  Task<std::optional<Turn>> take() {
    const std::shared_ptr<Turns> self = shared_from_this();
    while (is_taken_) {
      const bool was_notified = co_await ended_.wait();
      if (!was_notified) co_return std::nullopt;
    }
    is_taken_ = true;
    co_return Turn(self);
  }

 private:
  Notification ended_;
  bool is_taken_ = false;
};

}  // namespace hvd::net
