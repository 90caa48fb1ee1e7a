// The job's store: a rendezvous server in this process, to which the agents carry the requests of their ranks. If a
// Python program started this launcher (--store-fd), that program receives the secrets over its socket, and then uses
// the store over the same socket (rendezvous/PROTOCOL.md). Owns the server and the socket. JobLaunch owns this object.
// Lives on the launch's loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/secrets/secret.h"
#include "base/unique_fd.h"
#include "launcher/hosts/host_table.h"
#include "launcher/plan/launch_settings.h"
#include "net/asio.h"
#include "rendezvous/server/server.h"

namespace hvd::launcher {

class JobStore {
 public:
  // All arguments outlive this object.
  JobStore(net::asio::any_io_executor executor, const LaunchSettings& settings,
           const HostTable& hosts);

  // Takes ownership of the socket of --store-fd, if the flag is set. Returns an error that names the flag if the
  // descriptor is not a Unix stream socket.
  Status take_parent();
  // Call once. `joined`: the server by which hosts have joined; null: starts a server. `results`: the secret of the
  // ranks' results (HostJobs). Calls `on_parent_gone` when the parent process has closed its end or has died.
  void open(std::unique_ptr<rendezvous::Server> joined, const Secret& secret, const Secret& results,
            std::function<void()> on_parent_gone);
  bool is_open() const { return server_ != nullptr; }
  rendezvous::Server& server() { return *server_; }

  // Returns the peer that caused the failure of `rank`, as `rank` has reported, and a sentence about the cause, or an
  // empty text. Returns nullopt if `rank` has reported nothing.
  std::optional<std::pair<int, std::string>> left_by(int rank) const;

 private:
  std::optional<rendezvous::ScopeSizes> original_scopes() const;
  void serve_parent(const Secret& secret, const Secret& results, std::function<void()> on_gone);

  const net::asio::any_io_executor executor_;
  const LaunchSettings& settings_;
  const HostTable& hosts_;
  std::unique_ptr<rendezvous::Server> server_;
  UniqueFd parent_;
  std::optional<net::asio::posix::stream_descriptor> watched_parent_;
};

}  // namespace hvd::launcher
