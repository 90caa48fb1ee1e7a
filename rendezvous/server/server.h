// The rendezvous server of one job: its key-value store and its membership behind signed HTTP (PROTOCOL.md). Owns the
// listening sockets and the sessions. Lives on one loop, without locks: every call must come from the thread of that
// loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secrets/secret.h"
#include "base/unique_fd.h"
#include "net/asio.h"
#include "net/endpoint.h"
#include "net/tls/tls_front.h"
#include "rendezvous/server/monitor.h"
#include "rendezvous/server/server_core.h"
#include "rendezvous/server/unsigned_store.h"
#include "rendezvous/store/durable_store.h"

namespace hvd::rendezvous {

struct ServerOptions {
  Secret secret;
  int size =
      0;  // number of workers that get ranks from this server; 0: the server assigns no ranks
  ServerLimits limits = {};
  bool open_monitor = false;  // /metrics and /status without a token
  // If set, each listening port accepts TLS, and agents must use TLS.
  std::optional<net::TlsFront> tls = {};
  // If set, the server also serves the unsigned requests of Horovod's own workers, from a separate store: on
  // sockets passed to adopt(), and at the listening ports only if insecure_compat_at_ports is true.
  std::optional<ScopeSizes> insecure_compat = {};
  bool insecure_compat_at_ports = false;
  // The secret of the monitor's token, if it differs from the job's.
  std::optional<Secret> monitor_secret = {};
};

class Server {
 public:
  Server(net::asio::any_io_executor executor, ServerOptions options);
  // Calls close().
  ~Server();
  Server(const Server&) = delete;

  // Resumes the job of an earlier server, and stores each later change. Call it before listen().
  // Fails if the stored job is not this server's job. Calls `on_lost` when this server no longer owns the job (another
  // server has claimed it, or the store has lost it), after closing all connections of this server.
  Status resume(OpenedStore opened, std::function<void(Status)> on_lost);

  // Resolves, binds and listens; may be called several times. Returns the address of the socket,
  // with the port that the kernel chose for port 0.
  Result<net::Endpoint> listen(const net::Endpoint& endpoint);
  // Like listen(endpoint), with a non-blocking socket that listens already.
  Result<net::Endpoint> listen(UniqueFd listener);
  // Returns the port of the TCP socket that began to listen last; 0 if there is none.
  uint16_t port() const;
  // Serves an accepted connection. `socket` must use this server's loop.
  void adopt(net::StreamSocket socket);
  // Makes the server call `take` with the connection of each agent that connects to its launcher
  // (PROTOCOL.md, "Agents"). With an empty function the server refuses agents.
  void on_agent(std::function<void(net::AcceptedSocket)> take);
  // Shows the hosts that have joined the job so far, and the job's number of slots, on /status and /metrics.
  void show_hosts(int size, std::vector<JoinedHost> hosts);
  // Shows the states of a launcher's hosts and ranks on /status. `hosts` returns a JSON array, and must be callable
  // until the server is destroyed.
  void show_launch(std::function<std::string()> hosts);
  // Stops listening and ends all sessions. Each waiting request gets an error reply (503); the loop
  // must continue to run until these replies are sent.
  void close();
  // Ends this server but not the job, which the next server resumes if it is stored. Connections
  // break without a reply, and clients try again.
  void hand_over();

  // For the owner of the server, without a connection: set() sets a key; on_change() calls `on_key` on the loop after a
  // key with this prefix was set, during the server's lifetime.
  Status set(std::string_view key, ByteView value);
  void remove_all(std::string_view prefix);  // keys and exchanges
  void on_change(std::string prefix, std::function<void(const std::string& key)> on_key);

  // Returns the current value of this key, or nullopt if the key is absent.
  std::optional<Bytes> value(std::string_view key) const;

  size_t session_count() const;
  // Returns the number of requests that wait for a key, a change or an exchange.
  size_t waiter_count() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

// Starts to listen at the address from the flags --listen and --port-range. Call it on the server's loop.
// `where` is "[HOST]:PORT", "[IPv6]:PORT" or an endpoint with its family ("unix:/path"). With a
// `port_range` ("29400-29409"), the first free port of the range replaces the port in `where`.
// An error names the flag.
Result<net::Endpoint> listen_at(Server& server, const std::string& where,
                                const std::string& port_range);

}  // namespace hvd::rendezvous
