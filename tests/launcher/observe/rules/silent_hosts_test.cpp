#include "launcher/observe/rules/silent_hosts.h"

#include <doctest/doctest.h>

namespace hvd::launcher {
namespace {

const SlotPlan kFiveHosts = *plan_slots(
    {{"a", "", 1}, {"b", "", 2}, {"c", "", 1}, {"d", "", 1}, {"e", "", 1}, {"f", "", 1}}, {});

}  // namespace

TEST_CASE("a silent host has a line after 5 s, a sentence after 15 s, and one when it answers") {
  const HostTable table(kFiveHosts);
  SilentHosts hosts(table);
  for (int second = 1; second < 5; ++second) hosts.on_silence(1, second, 45);
  CHECK(hosts.status_line().empty());
  hosts.on_silence(1, 5, 45);
  CHECK(hosts.status_line() == "host b has not answered for 5 s (ranks 1-2); lost in 40 s");
  hosts.on_silence(1, 14, 45);
  CHECK_FALSE(hosts.take_news());
  hosts.on_silence(1, 15, 45);
  CHECK(hosts.take_news() == "host b has not answered for 15 s (ranks 1-2); lost in 30 s");
  hosts.on_silence(1, 16, 45);
  CHECK_FALSE(hosts.take_news());
  hosts.on_answer(1);
  CHECK(hosts.take_news() == "host b answers again");
  CHECK(hosts.status_line().empty());
}

TEST_CASE("a host that answers before its sentence, or is lost, has no other") {
  const HostTable table(kFiveHosts);
  SilentHosts hosts(table);
  hosts.on_silence(0, 9, 45);
  hosts.on_answer(0);
  CHECK_FALSE(hosts.take_news());
  hosts.on_silence(0, 15, 45);
  CHECK(hosts.take_news());
  hosts.on_gone(0);
  hosts.on_answer(0);
  CHECK_FALSE(hosts.take_news());
}

TEST_CASE("hosts that fall silent together share their sentences") {
  const HostTable table(kFiveHosts);
  SilentHosts hosts(table);
  for (const int host : {0, 2}) hosts.on_silence(host, 14, 45);
  hosts.on_silence(0, 15, 20);
  CHECK(hosts.take_news() == "hosts a and c have not answered for 15 s (ranks 0,3); lost in 5 s");
  hosts.on_silence(2, 15, 45);
  CHECK_FALSE(hosts.take_news());
  hosts.on_answer(2);
  CHECK_FALSE(hosts.take_news());
  hosts.on_answer(0);
  CHECK(hosts.take_news() == "hosts a and c answer again");
  for (int host = 0; host < 6; ++host) hosts.on_silence(host, 5, 45);
  CHECK(hosts.status_line() ==
        "hosts a, b, c, d and 2 others have not answered for 5 s (ranks 0-6); lost in 40 s");
}

TEST_CASE("a host whose answer is known is reported while another stays silent") {
  const HostTable table(kFiveHosts);
  SilentHosts hosts(table);
  hosts.on_silence(0, 15, 45);
  hosts.on_silence(1, 15, 45);
  CHECK(hosts.take_news());
  CHECK(hosts.take_news());
  hosts.on_answer(0);
  CHECK_FALSE(hosts.take_news());
  hosts.on_silence(1, 16, 45);
  CHECK(hosts.take_news() == "host a answers again");
}

}  // namespace hvd::launcher
