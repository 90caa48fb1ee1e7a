// Writes to a terminal, pipe, socket or file that may be stalled, without blocking the loop, and
// without changing flags that other processes see on the open file. A write to a file blocks where its
// file system stalls, so a thread does it. JobOutput owns it. Lives on the launch's loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/output/writer_thread.h"
#include "net/asio.h"

namespace hvd::launcher {

class Sink {
 public:
  // `fd` stays the caller's. `thread` outlives the sink.
  Sink(net::asio::any_io_executor executor, int fd, WriterThread& thread);
  // A file that the thread opens (WriterThread::open), which may stall. A failure breaks the sink.
  Sink(net::asio::any_io_executor executor, const std::string& path, int flags,
       WriterThread& thread);
  ~Sink();
  Sink(const Sink&) = delete;

  // Queues the bytes. `written` is called once, when they are written or, on a broken sink, thrown
  // away; it may be called before write returns.
  void write(std::string_view bytes, std::function<void()> written = {});
  // The caller writes no more: closes its copy of the descriptor when all is written.
  void end();
  // Returns when nothing is queued and, after end(), the copy is closed.
  net::Task<void> drain();
  // Throws away what is queued and all that follows.
  void discard();

  bool is_stalled() const;  // something is queued
  // Returns whether the queue stands still. A file takes a while even where nothing stalls.
  bool is_stuck() const;
  // Called once, when the far side is gone or full. From then on everything is thrown away.
  void on_broken(std::function<void(int error_number)> callback);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::launcher
