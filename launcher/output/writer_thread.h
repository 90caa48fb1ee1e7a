// Opens, writes and closes files on a thread of its own, in the order of the calls: a file system that stalls, such
// as NFS, blocks its writer. Does not bound what waits: JobOutput does. JobOutput owns it; its sinks call
// it. Calls and results are on the launch's loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "net/asio.h"

namespace hvd::launcher {

class WriterThread {
 public:
  using File = std::shared_ptr<UniqueFd>;
  // Gets 0 or an errno, on the executor.
  using Done = std::function<void(int error_number)>;

  // The thread starts with the first call.
  explicit WriterThread(net::asio::any_io_executor executor);
  // Does not wait for a write that blocks. Results that are not delivered yet are dropped.
  ~WriterThread();
  WriterThread(const WriterThread&) = delete;

  // Opens the path for writing, with its missing folders and these flags of open(2).
  void open(const File& file, const std::string& path, int flags, Done done);
  void write(const File& file, std::string_view bytes, Done done);
  // Replaces the file by one with these bytes, so that a reader sees one of them whole. All users may read it.
  void replace(const std::string& path, std::string_view bytes, Done done);
  void remove(const std::string& path, Done done);
  // Closes it, which may block as a write, and may show that an earlier write failed.
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

}  // namespace hvd::launcher
