// Makes this process's standard output and error lines of a spool. A thread of its own reads them from
// pipes: a file system that stalls holds back the ranks by their credit, as a stalled terminal does, and
// not the launch's loop. The thread reads no variables of the environment. The launcher of a detached job
// owns it.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/detach/spool.h"

namespace hvd::launcher {

class OutputRecorder {
 public:
  // `on_flushed`: the answer to flush(), on the recorder's thread.
  static Result<std::unique_ptr<OutputRecorder>> start(std::unique_ptr<Spool> spool,
                                                       std::function<void()> on_flushed);
  // Ends the thread; the spool has no end yet.
  ~OutputRecorder();
  OutputRecorder(const OutputRecorder&) = delete;

  // Calls on_flushed when the spool has all that was written before.
  void flush();
  // Writes the rest and the job's end to the spool.
  void end(int exit_code);

 private:
  OutputRecorder(std::unique_ptr<Spool> spool, std::function<void()> on_flushed)
      : spool_(std::move(spool)), on_flushed_(std::move(on_flushed)) {}
  void record();
  // Reads what is there.
  void read_stream(size_t stream);
  void stop();

  const std::unique_ptr<Spool> spool_;
  const std::function<void()> on_flushed_;
  std::array<UniqueFd, 2> streams_;  // the reader's ends
  std::array<std::string, 2> held_;  // a line that has no end yet
  UniqueFd orders_, order_sink_;     // a pipe: one byte for each order
  std::thread thread_;
};

}  // namespace hvd::launcher
