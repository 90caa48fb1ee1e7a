// Counts a server's requests, and formats the pages /metrics and /status for people and monitoring. Lives on the
// server's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/secrets/secret.h"

namespace hvd::rendezvous {

class StoreService;

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
  // Returns whether the target is a monitoring page.
  static bool is_its(std::string_view target) {
    return target == "/health" || target == "/metrics" || target == "/status";
  }
  // Returns the token that opens /metrics and /status to programs that cannot sign a request: they
  // send "Authorization: Bearer <token>". The token cannot sign anything.
  static std::string token(const Secret& secret);

  // Counts a request. `resource` is one of a few literals, so it outlives this object, and the table stays small.
  void count(std::string_view resource, int status) { ++requests_[{resource, status}]; }

  // Makes the pages count the slots of these hosts, out of `size`, instead of workers that request a place. For a
  // server whose launcher assigns the ranks.
  void show_hosts(int size, std::vector<JoinedHost> hosts) { joined_ = {size, std::move(hosts)}; }

  // Sets the source of the states of hosts and ranks, for a server inside a launcher. `hosts` returns a JSON array.
  void show_launch(std::function<std::string()> hosts) { launch_ = std::move(hosts); }

  // Returns Prometheus text, format 0.0.4.
  std::string metrics(const StoreService& service, size_t connections, size_t waiting) const;
  // Returns JSON: the workers or hosts that have arrived, the number of missing ones, and the waiting requests.
  std::string status(const StoreService& service, size_t connections,
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
  Count count_present(const StoreService& service) const;

  std::optional<Joined> joined_;
  std::function<std::string()> launch_;
  std::map<std::pair<std::string_view, int>, uint64_t> requests_;  // resource and status
  Clock::time_point start_ = Clock::now();
};

}  // namespace hvd::rendezvous
