// What the sessions of one server share: its secret, its limits, the service and the set of sessions
// themselves. Lives on the server's loop, as long as any of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/secrets/secret.h"
#include "net/asio.h"
#include "rendezvous/server/monitor.h"
#include "rendezvous/server/server_limits.h"
#include "rendezvous/server/service.h"
#include "rendezvous/server/unsigned_store.h"

namespace hvd::rendezvous {

class Session;

struct ServerCore {
  ServerCore(Secret key, int size, ServerLimits bounds, bool open_monitor)
      : secret(std::move(key)),
        monitor_token(Monitor::token(secret)),
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
  Service service;
  std::optional<UnsignedStore> unsigned_store;  // for unsigned requests, where they are served
  std::unordered_set<Session*> sessions;
  std::function<void(net::StreamSocket)> on_agent;  // takes connections of agents, while set
  bool is_closing = false;
  std::function<void()> expiry_changed;  // a key was given a lifetime, maybe
};

}  // namespace hvd::rendezvous
