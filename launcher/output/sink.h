// Writes to a terminal, pipe, socket or file that may be stalled, without blocking the loop, and
// without changing flags that other processes see on the open file. Output owns it. Lives on the
// launch's loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "net/asio.h"

namespace hvd::launcher {

class Sink {
 public:
  // `fd` stays the caller's.
  Sink(net::asio::any_io_executor executor, int fd);
  ~Sink();
  Sink(const Sink&) = delete;

  // Queues the bytes. `written` is called once, when they are written or, on a broken sink, thrown
  // away; it may be called before write returns.
  void write(std::string_view bytes, std::function<void()> written = {});
  // Returns when nothing is queued.
  net::Task<void> drain();
  // Throws away what is queued and all that follows.
  void discard();

  bool is_stalled() const;  // something is queued
  // Called once, when the far side is gone or full. From then on everything is thrown away.
  void on_broken(std::function<void(int error_number)> callback);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::launcher
