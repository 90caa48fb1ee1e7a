// The socket to the parent process that started this launcher and shares the job's store (--store-fd).
// Owns the socket: sends the secrets, then hands the connection to the rendezvous server, which speaks
// rendezvous/PROTOCOL.md over it. JobLaunch owns and calls it. Lives on the launch's loop.
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
  // Takes ownership of `fd` and sets close-on-exec. Fails with an error that names the flag when `fd` is
  // not a connected stream socket of this machine.
  static Result<std::unique_ptr<ParentProcess>> take(int fd);

  // Call once. `results`: the secret of the ranks' results (HostJobs). Calls `on_gone` when the parent
  // has closed its end or has died.
  void serve(net::asio::any_io_executor executor, const Secret& secret, const Secret& results,
             rendezvous::Server& server, std::function<void()> on_gone);

 private:
  explicit ParentProcess(UniqueFd socket) : socket_(std::move(socket)) {}

  UniqueFd socket_;
  std::optional<net::asio::posix::stream_descriptor> watched_;
};

}  // namespace hvd::launcher
