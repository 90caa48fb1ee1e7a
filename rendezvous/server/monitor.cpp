#include "rendezvous/server/monitor.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log/log.h"
#include "base/text.h"
#include "horovod/version.h"
#include "rendezvous/server/service.h"

namespace hvd::rendezvous {
namespace {

constexpr size_t kMaxShown = 1000;

double seconds_since(Clock::time_point time) {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

// Formats a time of the monotonic clock as a calendar date in UTC, for people.
std::string calendar(Clock::time_point time) {
  const auto ago =
      std::chrono::duration_cast<std::chrono::system_clock::duration>(Clock::now() - time);
  return time_text("%Y-%m-%dT%H:%M:%SZ", TimeZone::kUtc, std::chrono::system_clock::now() - ago);
}

// `value` keeps its own type, since an integer as a double would lose digits.
template <typename Number>
void add_gauge(std::string& text, std::string_view name, std::string_view help, Number value) {
  text += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " gauge\n", name, " ", value, "\n");
}

}  // namespace

std::string Monitor::token(const Secret& secret) {
  return to_hex(secret.sign(as_bytes("horovod-rendezvous-1 monitor\n")));
}

Monitor::Count Monitor::count_present(const StoreService& service) const {
  const Membership& membership = service.membership();
  if (!joined_) return {membership.size(), static_cast<int>(membership.workers().size())};
  Count count{joined_->size, 0};
  for (const JoinedHost& host : joined_->hosts) count.present += host.slots;
  return count;
}

std::string Monitor::metrics(const StoreService& service, size_t connections,
                             size_t waiting) const {
  std::string text =
      "# HELP horovod_rendezvous_requests_total Requests answered; refused ones were not signed, "
      "too large, or no requests.\n"
      "# TYPE horovod_rendezvous_requests_total counter\n";
  for (const auto& [key, count] : requests_) {
    text += cat("horovod_rendezvous_requests_total{resource=\"", key.first, "\",status=\"",
                key.second, "\"} ", count, "\n");
  }
  const StoreState& state = service.state();
  add_gauge(text, "horovod_rendezvous_connections", "Connections that are open.", connections);
  add_gauge(text, "horovod_rendezvous_waiting_requests", "Requests that wait for something.",
            waiting);
  add_gauge(text, "horovod_rendezvous_keys", "Keys in the store.", state.key_count());
  add_gauge(text, "horovod_rendezvous_value_bytes", "Bytes of all values in the store.",
            state.value_bytes());
  add_gauge(text, "horovod_rendezvous_workers",
            "Workers that asked for a place and are there, or slots of hosts that joined.",
            count_present(service).present);
  add_gauge(text, "horovod_rendezvous_size", "Workers that the job needs; 0: it assigns no ranks.",
            count_present(service).size);
  add_gauge(text, "horovod_rendezvous_uptime_seconds", "Seconds since the server began.",
            seconds_since(start_));
  return text;
}

std::string Monitor::status(const StoreService& service, size_t connections,
                            std::vector<WaitingRequest> waiting) const {
  using Json = nlohmann::ordered_json;
  const Membership& membership = service.membership();
  Json here = Json::array();
  for (const Membership::Present& worker : membership.workers()) {
    if (here.size() == kMaxShown) break;
    Json entry = {{"host", worker.host}, {"since", calendar(worker.since)}};
    if (worker.rank >= 0) entry["rank"] = worker.rank;
    here.push_back(std::move(entry));
  }
  std::sort(waiting.begin(), waiting.end(),
            [](const WaitingRequest& a, const WaitingRequest& b) { return a.since < b.since; });
  Json requests = Json::array();
  for (const WaitingRequest& request : waiting) {
    if (requests.size() == kMaxShown) break;
    requests.push_back({{"request", request.what}, {"since", calendar(request.since)}});
  }
  Json hosts = Json::array();
  for (const JoinedHost& host : joined_ ? joined_->hosts : std::vector<JoinedHost>()) {
    if (hosts.size() == kMaxShown) break;
    hosts.push_back({{"host", host.name}, {"slots", host.slots}, {"since", calendar(host.since)}});
  }
  const auto [size, present] = count_present(service);
  Json json = {{"version", HVD_VERSION},
               {"since", calendar(start_)},
               {"connections", connections},
               {"keys", service.state().key_count()},
               {"value_bytes", service.state().value_bytes()},
               {"job",
                {{"size", size},
                 {"complete", joined_ ? present >= size : membership.is_complete()},
                 {"present", present},
                 {"missing", std::max(0, size - present)},
                 {"hosts", std::move(hosts)},
                 {"workers", std::move(here)}}},
               {"waiting", std::move(requests)}};
  if (launch_) json["hosts"] = Json::parse(launch_());
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hvd::rendezvous
