// State that all sessions of one server share: secret, limits, service, monitor and the set of sessions. The server and
// each session share the ownership of this object, and use it on the server's loop.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/secrets/secret.h"
#include "net/http.h"
#include "net/tls/tls_front.h"
#include "rendezvous/server/monitor.h"
#include "rendezvous/server/service.h"
#include "rendezvous/server/unsigned_store.h"

namespace hvd::rendezvous {

// Limits of a rendezvous server in size, number and time (PROTOCOL.md, "Messages"). A Session enforces the limits
// of its connection, and Server the number of sessions.
struct ServerLimits {
  net::HttpLimits http = {};
  size_t sessions = 100'000;
  // Concurrent connections whose clients have not proven the secret, at most a quarter of the
  // descriptors. A further connection ends the oldest, whose client may connect again.
  size_t unproven = 100'000;
  // Time in which a new connection must prove that it knows the secret.
  std::chrono::milliseconds handshake{10'000};
  // The time from a request's first byte to its last, and the time for a client to accept a reply.
  // A body extends both times by its size divided by `rate`, in bytes per second.
  std::chrono::milliseconds transfer{60'000};
  size_t rate = 256 * 1024;

  std::chrono::milliseconds transfer_time(size_t body) const { return transfer + body_time(body); }
  std::chrono::milliseconds body_time(size_t body) const {
    return std::chrono::milliseconds(body * 1000 / rate);
  }
};

class Session;

struct ServerCore {
  ServerCore(Secret key, std::string token, int size, ServerLimits bounds, bool open_monitor)
      : secret(std::move(key)),
        monitor_token(std::move(token)),
        limits(bounds),
        is_monitor_open(open_monitor),
        service(size) {}
  std::vector<WaitingRequest> waiting() const;

  const Secret secret;
  const std::string monitor_token;
  const ServerLimits limits;
  const bool is_monitor_open;
  Monitor monitor;
  std::shared_ptr<DurableStore> durable;  // null: nothing is stored
  StoreService service;
  std::optional<UnsignedStore> unsigned_store;  // unset: unsigned requests are refused
  // The statuses of refusals that were already logged, since each is logged once.
  std::set<int> logged_refusals;
  std::unordered_set<Session*> sessions;
  // Sessions without a proof, in the order of connection. A proven session is removed at the next connection.
  std::deque<std::weak_ptr<Session>> unproven;
  std::function<void(net::AcceptedSocket)> on_agent;  // empty: agents are refused
  bool agents_use_tls = false;                        // agents without TLS are refused
  bool is_closing = false;
};

}  // namespace hvd::rendezvous
