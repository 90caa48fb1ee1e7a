#include "launcher/inspect/job_states.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

namespace hvd::launcher {

using Json = nlohmann::json;

TEST_CASE("the states of hosts and ranks are printed by their names") {
  HostTable hosts(*plan_slots({{"a", "", 2}, {"b", "", 1}}, {}));
  HostRun& first = hosts.host(0);
  first.to(HostState::kConnecting, HostCause::kReach);
  hosts.host(1).to(HostState::kConnecting, HostCause::kReach);
  hosts.host(1).enter(SpawnStage::kAuthenticate);
  first.to(HostState::kPreparing, HostCause::kConnected);
  first.to(HostState::kHeld, HostCause::kPrepared);
  first.to(HostState::kStarting, HostCause::kOrder);
  for (RankRun* rank : first.ranks()) rank->to(RankState::kStarting, RankCause::kOrder);
  hosts.rank(0).enter_job();
  hosts.rank(1).ended({.rank = 1, .signal = 9});
  const JobStates constant{.rank_of = [](int number) { return number; }};
  Json json = Json::parse(hosts_as_json(hosts, constant));
  for (Json& host : json) {
    CHECK(host.at("seconds").get<double>() >= 0);
    host.erase("seconds");
  }
  CHECK(json == Json::parse(R"([
    {"host": "a", "state": "starting",
     "ranks": [{"rank": 0, "state": "in_job"}, {"rank": 1, "state": "ended", "signal": 9}]},
    {"host": "b", "state": "connecting", "stage": "authenticate",
     "ranks": [{"rank": 2, "state": "planned"}]}])"));
  const std::string line = job_as_json(7, {"python3", "train.py"}, hosts, constant);
  CHECK(line.ends_with("}\n"));
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(line.starts_with(R"({"pid":7,"command":["python3","train.py"],"hosts":[{"host":"a")"));
}

TEST_CASE("a process of an elastic job is named beside its rank, if it has one") {
  HostTable hosts(*plan_slots({{"a", "", 2}}, {}));
  const JobStates elastic{.generation = 3,
                          .rank_of = [](int number) { return number == 1 ? 0 : -1; }};
  const Json json = Json::parse(job_as_json(7, {"x"}, hosts, elastic));
  CHECK(json.at("generation") == 3);
  CHECK(json.at("hosts")[0].at("ranks") == Json::parse(R"([{"process": 0, "state": "planned"},
                        {"process": 1, "rank": 0, "state": "planned"}])"));
}

}  // namespace hvd::launcher
