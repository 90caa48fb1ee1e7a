// The parent process that started this launcher and shares the job's store (--store-fd). It receives
// the secret, then speaks rendezvous/PROTOCOL.md over the same socket. Lives on the loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/secrets/secret.h"
#include "base/unique_fd.h"
#include "net/asio.h"
#include "rendezvous/server/server.h"

namespace hvd::launcher {

class ParentProcess {
 public:
  // Owns `fd`, which no child inherits from now on. An error names the flag: it is no connected
  // stream socket of this machine.
  static Result<std::unique_ptr<ParentProcess>> take(int fd);

  // Call once. `on_gone` is called when the parent has closed its end or has died.
  void serve(net::asio::any_io_executor executor, const Secret& secret, rendezvous::Server& server,
             std::function<void()> on_gone);

 private:
  explicit ParentProcess(UniqueFd socket) : socket_(std::move(socket)) {}

  UniqueFd socket_;
  std::optional<net::asio::posix::stream_descriptor> watched_;
};

}  // namespace hvd::launcher
