#include "launcher/reach/master_endpoint.h"

#include <doctest/doctest.h>

namespace hvd::launcher {
namespace {

HostTable table_of(const std::vector<std::string>& names) {
  std::vector<Host> hosts;
  for (const std::string& name : names) hosts.push_back({name, "", 1});
  return HostTable(*plan_slots(hosts, {}));
}

const MasterCandidates kCandidates{.port = 12345,
                                   .nonce = {},
                                   .addresses = {{"10.0.0.1", "eth0"},
                                                 {"172.17.0.1", "docker0"},
                                                 {"192.168.0.1", "eth1"},
                                                 {"127.0.0.1", "lo"}}};

std::string address_of(const StartOrder& order) { return order.environment.at(0).second; }

}  // namespace

TEST_CASE("all hosts get the first address that all others reach, by interfaces of their own") {
  const MasterEndpoints endpoints = choose_master_endpoints(
      table_of({"a", "b", "c"}), kCandidates,
      {{}, {{"10.0.0.1", "ens3"}, {"192.168.0.1", "ens4"}}, {{"192.168.0.1", "ib0"}}});
  CHECK(endpoints.warnings.empty());
  REQUIRE(endpoints.orders.size() == 3);
  for (const StartOrder& order : endpoints.orders) {
    CHECK(order.environment == std::vector<std::pair<std::string, std::string>>{
                                   {"MASTER_ADDR", "192.168.0.1"},
                                   {"MASTER_PORT", "12345"},
                                   {"JAX_COORDINATOR_ADDRESS", "192.168.0.1:12345"}});
  }
  CHECK(endpoints.orders[0].interface == "eth1");
  CHECK(endpoints.orders[1].interface == "ens4");
  CHECK(endpoints.orders[2].interface == "ib0");
}

TEST_CASE("hosts that share no address go to the one that each of them reaches") {
  const MasterEndpoints endpoints = choose_master_endpoints(
      table_of({"a", "b", "c"}), kCandidates, {{}, {{"10.0.0.1", "x"}}, {{"192.168.0.1", "y"}}});
  CHECK(endpoints.warnings.empty());
  CHECK(address_of(endpoints.orders[0]) == "10.0.0.1");
  CHECK(address_of(endpoints.orders[1]) == "10.0.0.1");
  CHECK(address_of(endpoints.orders[2]) == "192.168.0.1");
}

TEST_CASE("a host that reaches no address still gets one, and the user gets a warning") {
  const MasterEndpoints endpoints =
      choose_master_endpoints(table_of({"a", "b"}), kCandidates, {{}, {}});
  CHECK(address_of(endpoints.orders[1]) == "10.0.0.1");
  CHECK(endpoints.orders[1].interface.empty());
  REQUIRE(endpoints.warnings.size() == 1);
  CHECK(endpoints.warnings[0].starts_with(
      "host b reaches none of the addresses of host a at port 12345: 10.0.0.1 (eth0), "));
}

TEST_CASE("a single host uses its loopback") {
  const MasterEndpoints endpoints = choose_master_endpoints(table_of({"a"}), kCandidates, {{}});
  CHECK(address_of(endpoints.orders[0]) == "127.0.0.1");
  CHECK(endpoints.orders[0].interface == "lo");
}

TEST_CASE("a host whose loopback is down is named, with the fix") {
  const MasterEndpoints endpoints =
      choose_master_endpoints(table_of({"a"}), {.port = 5, .nonce = {}, .addresses = {}}, {{}});
  REQUIRE(endpoints.warnings.size() == 1);
  CHECK(
      endpoints.warnings[0] ==
      "host a: its loopback interface lo is down, so programs there cannot connect to each other; "
      "run there as root: ip link set lo up");
}

TEST_CASE("JAX gets an IPv6 address in brackets") {
  const MasterEndpoints endpoints = choose_master_endpoints(
      table_of({"a", "b"}), {.port = 5, .nonce = {}, .addresses = {{"fd00::1", "eth0"}}},
      {{}, {{"fd00::1", "eth0"}}});
  CHECK(address_of(endpoints.orders[0]) == "fd00::1");
  CHECK(endpoints.orders[0].environment[2].second == "[fd00::1]:5");
}

}  // namespace hvd::launcher
