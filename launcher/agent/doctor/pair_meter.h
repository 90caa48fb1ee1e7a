// Measures the link from this host to another one: latency, large packets, and bandwidth in both directions. The other
// host runs a PairServer, which only echoes, drains and fills. Blocks the calling thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/secrets/secret.h"
#include "launcher/agent/doctor/proven_stream.h"
#include "net/endpoint.h"
#include "net/tcp_transport.h"

namespace hvd::launcher {

// Serves the measurements of other hosts, on a thread of its own, until the process ends.
class PairServer {
 public:
  // `rank`: this host's. A client that looks for another host, and has only reached an address that several hosts have,
  // is refused.
  static Result<PairServer> open(const Secret& secret, const net::PortRange& ports, int rank);
  uint16_t port() const { return port_; }

 private:
  explicit PairServer(uint16_t port) : port_(port) {}
  uint16_t port_;
};

// The host to measure, and for how many seconds to load the link in each direction.
struct PairTarget {
  std::vector<std::string> addresses{};
  uint16_t port = 0;
  int rank = 0;
  double load_seconds = 0;
};

// Returns the values of a pair (docs/doctor.md): address, send, receive, latency_min, latency_p50, latency_p99,
// retransmits, large_lost, error.
nlohmann::json measure_pair(const PairTarget& target, const Secret& secret);

// Serves one client of a PairServer, until it ends or sends something else than a request.
Status serve_pair(ProvenStream& stream);

}  // namespace hvd::launcher
