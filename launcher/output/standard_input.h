// Forwards the launcher's standard input to ranks. Credit bounds the data in flight, however slowly
// the ranks read. Never reads from a terminal in the background. JobLaunch owns it. Lives on the
// launch's loop.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "net/asio.h"

namespace hvd::launcher {

class StandardInput {
 public:
  // Without bytes: the end.
  using Send = std::function<void(int rank, ByteView bytes)>;

  // `fd` stays the caller's.
  StandardInput(net::asio::any_io_executor executor, int fd, std::vector<int> ranks, Send send);
  ~StandardInput();
  StandardInput(const StandardInput&) = delete;

  void start();
  // The rank has taken so many bytes, or has ended.
  void taken(int rank, size_t size);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::launcher
