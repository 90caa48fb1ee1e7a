// The program that started this launcher and shares the job's store with it (--store-fd): it gets the
// secret, then speaks rendezvous/PROTOCOL.md over the same socket. Lives on the loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/secrets/secret.h"
#include "base/unique_fd.h"
#include "net/asio.h"
#include "rendezvous/server/server.h"

namespace hvd::launcher {

class Starter {
 public:
  // Owns `fd`, which no child inherits from now on. An error names the flag: it is no connected
  // stream socket of this machine.
  static Result<std::unique_ptr<Starter>> take(int fd);

  // Once. `on_gone` is called when the program has closed its end or has died.
  void serve(net::asio::any_io_executor executor, const Secret& secret, rendezvous::Server& server,
             std::function<void()> on_gone);

 private:
  explicit Starter(UniqueFd socket) : socket_(std::move(socket)) {}

  UniqueFd socket_;
  std::optional<net::asio::posix::stream_descriptor> watched_;
};

}  // namespace hvd::launcher
