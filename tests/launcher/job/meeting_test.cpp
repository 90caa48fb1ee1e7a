#include "launcher/job/meeting.h"

#include <doctest/doctest.h>

namespace hvd::launcher {
namespace {

SlotPlan plan_of(const std::vector<std::string>& names) {
  std::vector<Host> hosts;
  for (const std::string& name : names) hosts.push_back({name, "", 1});
  return *plan_slots(hosts, {});
}

const MeetingOffer kOffer{.port = 12345,
                          .nonce = {},
                          .addresses = {{"10.0.0.1", "eth0"},
                                        {"172.17.0.1", "docker0"},
                                        {"192.168.0.1", "eth1"},
                                        {"127.0.0.1", "lo"}}};

std::string address_of(const StartOrder& order) { return order.environment.at(0).second; }

}  // namespace

TEST_CASE("all hosts meet at the first address that all others reach, by interfaces of their own") {
  const Meeting meeting = choose_meeting(
      plan_of({"a", "b", "c"}), kOffer,
      {{}, {{"10.0.0.1", "ens3"}, {"192.168.0.1", "ens4"}}, {{"192.168.0.1", "ib0"}}});
  CHECK(meeting.warnings.empty());
  REQUIRE(meeting.orders.size() == 3);
  for (const StartOrder& order : meeting.orders) {
    CHECK(order.environment == std::vector<std::pair<std::string, std::string>>{
                                   {"MASTER_ADDR", "192.168.0.1"},
                                   {"MASTER_PORT", "12345"},
                                   {"JAX_COORDINATOR_ADDRESS", "192.168.0.1:12345"}});
  }
  CHECK(meeting.orders[0].interface == "eth1");
  CHECK(meeting.orders[1].interface == "ens4");
  CHECK(meeting.orders[2].interface == "ib0");
}

TEST_CASE("hosts that share no address go to the one that each of them reaches") {
  const Meeting meeting = choose_meeting(plan_of({"a", "b", "c"}), kOffer,
                                         {{}, {{"10.0.0.1", "x"}}, {{"192.168.0.1", "y"}}});
  CHECK(meeting.warnings.empty());
  CHECK(address_of(meeting.orders[0]) == "10.0.0.1");
  CHECK(address_of(meeting.orders[1]) == "10.0.0.1");
  CHECK(address_of(meeting.orders[2]) == "192.168.0.1");
}

TEST_CASE("a host that reaches none is told one all the same, and the user which it is") {
  const Meeting meeting = choose_meeting(plan_of({"a", "b"}), kOffer, {{}, {}});
  CHECK(address_of(meeting.orders[1]) == "10.0.0.1");
  CHECK(meeting.orders[1].interface.empty());
  REQUIRE(meeting.warnings.size() == 1);
  CHECK(meeting.warnings[0].starts_with(
      "host b reaches none of the addresses of host a at port 12345: 10.0.0.1 (eth0), "));
}

TEST_CASE("a single host meets on its loopback") {
  const Meeting meeting = choose_meeting(plan_of({"a"}), kOffer, {{}});
  CHECK(address_of(meeting.orders[0]) == "127.0.0.1");
  CHECK(meeting.orders[0].interface == "lo");
}

TEST_CASE("a host whose loopback is down is named, with the fix") {
  const Meeting meeting =
      choose_meeting(plan_of({"a"}), {.port = 5, .nonce = {}, .addresses = {}}, {{}});
  REQUIRE(meeting.warnings.size() == 1);
  CHECK(
      meeting.warnings[0] ==
      "host a: its loopback interface lo is down, so programs there cannot connect to each other; "
      "run there as root: ip link set lo up");
}

TEST_CASE("JAX gets an IPv6 address in brackets") {
  const Meeting meeting = choose_meeting(
      plan_of({"a", "b"}), {.port = 5, .nonce = {}, .addresses = {{"fd00::1", "eth0"}}},
      {{}, {{"fd00::1", "eth0"}}});
  CHECK(address_of(meeting.orders[0]) == "fd00::1");
  CHECK(meeting.orders[0].environment[2].second == "[fd00::1]:5");
}

}  // namespace hvd::launcher
