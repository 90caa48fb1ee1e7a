// Writes to a terminal, pipe, socket or file that may be stalled, without blocking the loop. Leaves flags of the open
// file, which other processes share, unchanged if possible. A write to a file may block, and is done by a thread.
// JobOutput owns the sinks. Lives on the launch's loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"
#include "net/asio.h"

namespace hvd::launcher {

// Opens, writes and closes files on a separate thread, because a stalled file system such as NFS blocks its writer.
// Keeps the order of the calls. JobOutput owns one for its sinks, and limits the waiting data; MetricsFile owns
// another. Calls and results are on the launch's loop.
class WriterThread {
 public:
  using File = std::shared_ptr<UniqueFd>;
  // Called with 0 or an errno, on the executor.
  using Done = std::function<void(int error_number)>;

  // The thread starts with the first call.
  explicit WriterThread(net::asio::any_io_executor executor);
  // Does not wait for a blocked write. Drops results that are not delivered yet.
  ~WriterThread();
  WriterThread(const WriterThread&) = delete;

  // Opens the path for writing with these flags of open(2), and creates missing folders.
  void open(const File& file, const std::string& path, int flags, Done done);
  void write(const File& file, std::string_view bytes, Done done);
  // Replaces the file atomically: a reader sees the old or the new bytes. All users may read the file.
  void replace(const std::string& path, std::string_view bytes, Done done);
  void remove(const std::string& path, Done done);
  // Closes the file. This may block like a write, and may report that an earlier write has failed.
  void close(const File& file, Done done);

 private:
  struct Job;
  struct State;
  using Step = std::function<int(UniqueFd& file)>;  // returns 0 or an errno
  static void work(const std::shared_ptr<State>& state);
  void start();
  void add(Job job);

  const std::shared_ptr<State> state_;
  bool is_started_ = false;
};

class Sink {
 public:
  // `fd` remains the caller's. `thread` must outlive the sink.
  Sink(net::asio::any_io_executor executor, int fd, WriterThread& thread);
  // For a file that the thread opens (WriterThread::open). A failure breaks the sink.
  Sink(net::asio::any_io_executor executor, const std::string& path, int flags,
       WriterThread& thread);
  ~Sink();
  Sink(const Sink&) = delete;

  // Queues the bytes. `written` is called once, possibly before write() returns: when the bytes are written, or when a
  // broken sink has dropped them.
  void write(std::string_view bytes, std::function<void()> written = {});
  // Call after the last write: closes the sink's copy of the descriptor once all bytes are written.
  void end();
  // Returns when the queue is empty and, after end(), the copy is closed.
  net::Task<void> drain();
  // Drops queued and further bytes.
  void discard();

  bool is_stalled() const;  // bytes are queued
  // Returns whether the queue makes no progress. A file counts as stuck only after one second.
  bool is_stuck() const;
  // Called once, when opening, writing or closing fails, for example because the reader has gone or the disk is full.
  // After the call, all bytes are dropped.
  void on_broken(std::function<void(int error_number)> callback);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::launcher
