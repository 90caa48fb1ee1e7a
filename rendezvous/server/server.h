// The rendezvous server: a keyed store and the membership of one job behind signed HTTP
// (PROTOCOL.md). Lives on one loop, without locks: every call must come from its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secrets/secret.h"
#include "net/asio.h"
#include "net/endpoint.h"
#include "net/tls_front.h"
#include "rendezvous/server/monitor.h"
#include "rendezvous/server/server_limits.h"
#include "rendezvous/server/unsigned_store.h"
#include "rendezvous/store/durable_store.h"

namespace hvd::rendezvous {

struct ServerOptions {
  Secret secret;
  int size = 0;  // workers that ask for a place; 0 hands out none
  ServerLimits limits = {};
  bool open_monitor = false;              // /metrics and /status without a token
  std::optional<net::TlsFront> tls = {};  // set: what it listens at speaks TLS alone
  // Set: serves the unsigned requests of the original's workers too, in a store of their own.
  std::optional<ScopeSizes> insecure_compat = {};
};

class Server {
 public:
  Server(net::asio::any_io_executor executor, ServerOptions options);
  // Closes.
  ~Server();
  Server(const Server&) = delete;

  // Resumes the job of an earlier server, and stores each change from here on. Before listen; fails
  // when this server was started for another job than the stored one. `on_lost`: another server owns
  // the job, and all connections of this one have ended.
  Status resume(OpenedStore opened, std::function<void(Status)> on_lost);

  // Resolves, binds and listens; may be called several times. Gives the address it listens on,
  // with the port that the kernel chose for port 0.
  Result<net::Endpoint> listen(const net::Endpoint& endpoint);
  // Of the last TCP endpoint; 0 without one.
  uint16_t port() const;
  // Serves one connection that was made elsewhere. The socket must be of this loop.
  void adopt(net::StreamSocket socket);
  // Takes the connections of agents who call their launcher (PROTOCOL.md, "Agents"), from now on;
  // an empty function takes none.
  void on_agent(std::function<void(net::StreamSocket)> take);
  // The hosts that have joined the job so far, and its slots, for monitoring.
  void show_hosts(int size, std::vector<JoinedHost> hosts);
  // Stops listening and ends all sessions; who waits is told so. Needs the loop to run on for a
  // moment.
  void close();
  // Ends this server but not the job, which the next server resumes if it is stored: connections break,
  // and no client learns that the job has ended.
  void hand_over();

  // What the store holds under this key now.
  std::optional<Bytes> value(std::string_view key) const;

  size_t session_count() const;
  // Requests that wait for a key or at a fence.
  size_t waiter_count() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::rendezvous
