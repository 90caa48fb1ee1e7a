// State that all sessions of one server share: secret, limits, service, monitor and the set of
// sessions. The Server creates ServerCore. The server and each session keep this state alive
// and use it on the server's loop.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/secrets/secret.h"
#include "net/tls/accepted_socket.h"
#include "rendezvous/server/monitor.h"
#include "rendezvous/server/server_limits.h"
#include "rendezvous/server/service.h"
#include "rendezvous/server/unsigned_store.h"

namespace hvd::rendezvous {

class Session;

struct ServerCore {
  ServerCore(Secret key, std::string token, int size, ServerLimits bounds, bool open_monitor)
      : secret(std::move(key)),
        monitor_token(std::move(token)),
        limits(bounds),
        is_monitor_open(open_monitor),
        service(size) {}
  // Returns the waiting requests of all sessions.
  std::vector<WaitingRequest> waiting() const;

  const Secret secret;
  const std::string monitor_token;
  const ServerLimits limits;
  const bool is_monitor_open;
  Monitor monitor;
  std::shared_ptr<DurableStore> durable;  // null: nothing is stored
  StoreService service;
  std::optional<UnsignedStore> unsigned_store;  // unset: unsigned requests are refused
  // The statuses of unsigned requests that were already logged, since each is logged once.
  std::set<int> logged_refusals;
  std::unordered_set<Session*> sessions;
  // Sessions without a proof, in the order of connection. A proven session is removed at the next connection.
  std::deque<std::weak_ptr<Session>> unproven;
  std::function<void(net::AcceptedSocket)> on_agent;  // empty: agents are refused
  bool agents_use_tls = false;                        // agents without TLS are refused
  bool is_closing = false;
};

}  // namespace hvd::rendezvous
