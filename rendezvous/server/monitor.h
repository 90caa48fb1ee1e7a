// What people and monitoring see of a server: /health, /metrics and /status, on its one port.
// Counts on the server's loop; the texts are made when somebody asks.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/secrets/secret.h"

namespace hvd::rendezvous {

class Service;

// A request that waits.
struct WaitingRequest {
  std::string what;  // method and path, without parameters
  Clock::time_point since;
};

// A host that joined a launcher's job.
struct JoinedHost {
  std::string name;
  int slots = 0;
  Clock::time_point since;
};

class Monitor {
 public:
  static bool is_its(std::string_view target) {
    return target == "/health" || target == "/metrics" || target == "/status";
  }
  // What opens /metrics and /status to programs that cannot sign: "Authorization: Bearer <this>".
  // Shows what the server shows; signs nothing.
  static std::string token(const Secret& secret);

  // `resource` is one of few, and lives for ever.
  void count(std::string_view resource, int status) { ++requests_[{resource, status}]; }

  // The job has so many slots, and its launcher places the ranks: these hosts count, and not workers
  // that ask for a place.
  void show_hosts(int size, std::vector<JoinedHost> hosts) { joined_ = {size, std::move(hosts)}; }

  // Prometheus text, format 0.0.4.
  std::string metrics(const Service& service, size_t connections, size_t waiting) const;
  // JSON: who is here, who is missing, since when.
  std::string status(const Service& service, size_t connections,
                     std::vector<WaitingRequest> waiting) const;

 private:
  struct Joined {
    int size;
    std::vector<JoinedHost> hosts;
  };
  struct Count {
    int size;
    int present;
  };
  Count count_present(const Service& service) const;

  std::optional<Joined> joined_;
  std::map<std::pair<std::string_view, int>, uint64_t> requests_;  // resource and status
  Clock::time_point start_ = Clock::now();
};

}  // namespace hvd::rendezvous
