#include "launcher/reach/master_endpoint.h"

#include <algorithm>

#include "base/text.h"
#include "net/notification.h"

namespace hvd::launcher {
namespace {

using Addresses = std::vector<std::pair<std::string, std::string>>;

const std::string* interface_of(const Addresses& addresses, const std::string& address) {
  const auto found = std::find_if(addresses.begin(), addresses.end(),
                                  [&](const auto& each) { return each.first == address; });
  return found == addresses.end() ? nullptr : &found->second;
}

StartOrder order_for(const std::string& address, uint16_t port, std::string interface) {
  const std::string host =
      address.find(':') == std::string::npos ? address : cat("[", address, "]");
  StartOrder order;
  order.environment = {{"MASTER_ADDR", address},
                       {"MASTER_PORT", cat(port)},
                       {"JAX_COORDINATOR_ADDRESS", cat(host, ":", port)}};
  order.interface = std::move(interface);
  return order;
}

// Returns the first address that all other hosts reach, else the first candidate; empty if there is no candidate.
std::string common_address(const MasterCandidates& candidates, const std::vector<Reached>& reached,
                           size_t home) {
  for (const auto& [address, interface] : candidates.addresses) {
    bool is_common = true;
    for (size_t host = 0; host < reached.size(); ++host) {
      is_common &= host == home || interface_of(reached[host], address) != nullptr;
    }
    if (is_common) return address;
  }
  return candidates.addresses.empty() ? "" : candidates.addresses.front().first;
}

std::string unreachable(const HostRun& host, const HostRun& home,
                        const MasterCandidates& candidates) {
  std::string tried;
  for (const auto& [address, interface] : candidates.addresses) {
    tried += cat(tried.empty() ? "" : ", ", address, " (", interface, ")");
  }
  return cat("host ", host.name(), " reaches none of the addresses of host ", home.name(),
             " at port ", candidates.port, ": ", tried,
             "; programs that connect to MASTER_ADDR will fail, unless the firewall opens the port "
             "(--port-range) or --network-interfaces names another network");
}

bool has_loopback(const MasterCandidates& candidates) {
  return std::any_of(
      candidates.addresses.begin(), candidates.addresses.end(),
      [](const auto& each) { return each.first == "::1" || each.first.starts_with("127."); });
}

}  // namespace

MasterEndpoints choose_master_endpoints(const HostTable& hosts, const MasterCandidates& candidates,
                                        const std::vector<Reached>& reached) {
  const HostRun& first = hosts.rank(0).host();
  const auto home = static_cast<size_t>(first.number());
  MasterEndpoints endpoints;
  if (!has_loopback(candidates)) {
    endpoints.warnings.push_back(
        cat("host ", first.name(),
            ": its loopback interface lo is "
            "down, so programs there cannot connect to each other; run there as "
            "root: ip link set lo up"));
  }
  // A single host uses its loopback address, which network changes do not affect.
  const std::string common = reached.size() == 1 && !candidates.addresses.empty()
                                 ? candidates.addresses.back().first
                                 : common_address(candidates, reached, home);
  for (size_t host = 0; host < reached.size(); ++host) {
    const Addresses& known = host == home ? candidates.addresses : reached[host];
    if (const std::string* interface = interface_of(known, common)) {
      endpoints.orders.push_back(order_for(common, candidates.port, *interface));
    } else if (!known.empty()) {
      endpoints.orders.push_back(
          order_for(known.front().first, candidates.port, known.front().second));
    } else {
      endpoints.orders.push_back(order_for(common, candidates.port, ""));
      if (host != home) {
        const HostRun& other = hosts.host(static_cast<int>(host));
        endpoints.warnings.push_back(unreachable(other, first, candidates));
      }
    }
  }
  return endpoints;
}

net::Task<MasterEndpoints> find_master_endpoints(net::asio::any_io_executor executor,
                                                 const HostTable& hosts) {
  struct Tests {
    std::vector<Reached> reached;
    size_t left;
    net::Notification done;
  };
  const HostRun& home = hosts.rank(0).host();
  const MasterCandidates candidates = home.link()->prepared().candidates;
  const size_t count = hosts.hosts().size();
  const auto tests = std::make_shared<Tests>(
      Tests{std::vector<Reached>(count), count - 1, net::Notification(executor)});
  for (const HostRun& host : hosts.hosts()) {
    if (&host == &home) continue;
    net::asio::co_spawn(
        executor, host.link()->test_reachability(candidates),
        [tests, number = static_cast<size_t>(host.number())](std::exception_ptr, Reached reached) {
          tests->reached[number] = std::move(reached);
          --tests->left;
          tests->done.notify();
        });
  }
  while (tests->left > 0) co_await tests->done.wait();
  co_return choose_master_endpoints(hosts, candidates, tests->reached);
}

}  // namespace hvd::launcher
