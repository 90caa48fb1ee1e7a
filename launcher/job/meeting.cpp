#include "launcher/job/meeting.h"

#include <algorithm>

#include "base/text.h"
#include "launcher/protocol/bell.h"

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

// The first address that all the others reach; else the first; none where nothing is offered.
std::string common_address(const MeetingOffer& offer, const std::vector<Reached>& reached,
                           size_t home) {
  for (const auto& [address, interface] : offer.addresses) {
    bool is_common = true;
    for (size_t host = 0; host < reached.size(); ++host) {
      is_common &= host == home || interface_of(reached[host], address) != nullptr;
    }
    if (is_common) return address;
  }
  return offer.addresses.empty() ? "" : offer.addresses.front().first;
}

std::string unreachable(const SlotPlan& plan, size_t host, size_t home, const MeetingOffer& offer) {
  std::string tried;
  for (const auto& [address, interface] : offer.addresses) {
    tried += cat(tried.empty() ? "" : ", ", address, " (", interface, ")");
  }
  return cat("host ", plan.hosts[host].name, " reaches none of the addresses of host ",
             plan.hosts[home].name, " at port ", offer.port, ": ", tried,
             "; programs that meet at MASTER_ADDR will not, unless a firewall opens it "
             "(--port-range) or --network-interfaces names another network");
}

bool has_loopback(const MeetingOffer& offer) {
  return std::any_of(offer.addresses.begin(), offer.addresses.end(), [](const auto& each) {
    return each.first == "::1" || each.first.starts_with("127.");
  });
}

}  // namespace

Meeting choose_meeting(const SlotPlan& plan, const MeetingOffer& offer,
                       const std::vector<Reached>& reached) {
  const auto home = static_cast<size_t>(plan.slots.front().host);
  Meeting meeting;
  if (!has_loopback(offer)) {
    meeting.warnings.push_back(
        cat("host ", plan.hosts[home].name,
            ": its loopback interface lo is "
            "down, so programs there cannot connect to each other; run there as "
            "root: ip link set lo up"));
  }
  // Alone, a host meets on its loopback, which no change of its networks touches.
  const std::string common = reached.size() == 1 && !offer.addresses.empty()
                                 ? offer.addresses.back().first
                                 : common_address(offer, reached, home);
  for (size_t host = 0; host < reached.size(); ++host) {
    const Addresses& known = host == home ? offer.addresses : reached[host];
    if (const std::string* interface = interface_of(known, common)) {
      meeting.orders.push_back(order_for(common, offer.port, *interface));
    } else if (!known.empty()) {
      meeting.orders.push_back(order_for(known.front().first, offer.port, known.front().second));
    } else {
      meeting.orders.push_back(order_for(common, offer.port, ""));
      if (host != home) meeting.warnings.push_back(unreachable(plan, host, home, offer));
    }
  }
  return meeting;
}

net::Task<Meeting> arrange_meeting(net::asio::any_io_executor executor, const SlotPlan& plan,
                                   const std::vector<std::unique_ptr<AgentLink>>& links) {
  struct Tests {
    std::vector<Reached> reached;
    size_t left;
    Bell done;
  };
  const auto home = static_cast<size_t>(plan.slots.front().host);
  const MeetingOffer offer = links[home]->offer();
  const auto tests = std::make_shared<Tests>(
      Tests{std::vector<Reached>(links.size()), links.size() - 1, Bell(executor)});
  for (size_t host = 0; host < links.size(); ++host) {
    if (host == home) continue;
    net::asio::co_spawn(executor, links[host]->test_reachability(offer),
                        [tests, host](std::exception_ptr, Reached reached) {
                          tests->reached[host] = std::move(reached);
                          --tests->left;
                          tests->done.ring();
                        });
  }
  while (tests->left > 0) co_await tests->done.wait();
  co_return choose_meeting(plan, offer, tests->reached);
}

}  // namespace hvd::launcher
