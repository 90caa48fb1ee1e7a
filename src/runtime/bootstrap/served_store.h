// The store of a job under a foreign launcher, or of a start by hvd_init_options.share. Rank 0 serves the store on a
// separate thread, which sleeps while no request arrives. The other ranks use the store's first address at which a
// server with the job's secret replies. The saved bootstrap (foreign_launcher.h) or Bootstrap::session owns the
// server.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/secrets/secret.h"
#include "net/asio.h"
#include "rendezvous/client/http_store.h"
#include "rendezvous/server/server.h"
#include "runtime/bootstrap/identity.h"
#include "runtime/settings/worker_settings.h"

namespace hvd::runtime {

class ServedStore {
 public:
  // Listens on all addresses that the settings allow, at one port of the allowed range.
  // Unauthenticated connections may use only a share of this process's descriptors.
  static Result<std::unique_ptr<ServedStore>> start(const Secret& secret,
                                                    const WorkerSettings& settings);
  // Ends all connections.
  ~ServedStore();
  ServedStore(const ServedStore&) = delete;

  // Returns the numeric addresses at which other processes may reach the store; loopback only if no other exists.
  const std::vector<net::Endpoint>& endpoints() const { return endpoints_; }

 private:
  explicit ServedStore(const Secret& secret);
  Status listen(const WorkerSettings& settings);

  net::asio::io_context loop_{1};
  net::asio::executor_work_guard<net::asio::io_context::executor_type> work_;
  std::unique_ptr<rendezvous::Server> server_;
  std::vector<net::Endpoint> endpoints_;
  std::thread thread_;
};

// Returns rank 0's message to the other ranks about its store, as text.
std::string invitation(const Secret& secret, std::span<const net::Endpoint> endpoints);

struct Invitation {
  std::string secret;  // in hexadecimal digits
  std::vector<net::Endpoint> endpoints;
};
Result<Invitation> parse_invitation(std::string_view text);

// Connects to the store of rank `leader` at its first address at which a server with this secret replies. Another
// server may listen there, since several machines may have the same address.
Result<std::shared_ptr<rendezvous::HttpStore>> reach_store(const Invitation& invitation,
                                                           int32_t rank, int32_t leader,
                                                           Deadline deadline);

// This process's rank, and a function that shares a text, both from the caller of hvd_init (hvd_init_options.share).
struct CallerPlace {
  int32_t rank = 0;
  int32_t size = 0;
  // Copies rank 0's text to all ranks; returns false on failure. Blocks.
  std::function<bool(std::string* text)> share;
};

Result<Bootstrap> bootstrap_by_caller(const CallerPlace& place, const WorkerSettings& settings);

}  // namespace hvd::runtime
