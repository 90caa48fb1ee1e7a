#include "launcher/doctor/findings.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "launcher/doctor/report.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;

Json healthy() {
  return {
      {"cpus_allowed", 8},
      {"memory_available", 64e9},
      {"shm_path", "/dev/shm"},
      {"shm_bytes", 32e9},
      {"shm_inodes", 1000},
      {"tmp_path", "/tmp"},
      {"tmp_bytes", 10e9},
      {"nofile", 1048576},
      {"clock_synchronised", true},
      {"kernel", "6.1"},
      {"machine", "x86_64"},
      {"cpu_model", "x"},
      {"cpu_speed", 1000.0},
      {"interfaces", {{{"name", "eth0"}, {"speed", 10000}, {"mtu", 1500}, {"duplex", "full"}}}}};
}

std::vector<HostFacts> hosts_with(const Json& changed, size_t count = 4) {
  std::vector<HostFacts> hosts;
  for (size_t i = 0; i < count; ++i) {
    HostFacts host{.host = std::string(1, static_cast<char>('a' + i)), .ranks = 4};
    host.facts = healthy();
    hosts.push_back(std::move(host));
  }
  hosts[1].facts.update(changed);
  return hosts;
}

// A fault of host b gives one finding, which names b and nothing else.
void check_one(const char* id, Verdict verdict, const Json& changed) {
  CAPTURE(id);
  const auto hosts = hosts_with(changed);
  const auto findings = judge_hosts(hosts);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == id);
  CHECK(findings[0].verdict == verdict);
  CHECK(findings[0].hosts == std::vector<std::string>{"b"});
  CHECK(!findings[0].why.empty());
}

TEST_CASE("healthy hosts have no findings") {
  CHECK(judge_hosts(hosts_with(Json::object())).empty());
}

TEST_CASE("each fault of a host gives its finding, and no other") {
  check_one("cpus", Verdict::kWarn, {{"cpus_allowed", 2}});
  check_one("cpu_quota", Verdict::kWarn, {{"cpu_quota", 0.5}});
  check_one("contention", Verdict::kWarn, {{"run_delay_percent", 55.0}});
  check_one("contention", Verdict::kNote, {{"run_delay_percent", 15.0}});
  check_one("steal", Verdict::kWarn, {{"steal_percent", 40.0}});
  check_one("memory", Verdict::kFail, {{"memory_available", 100e6}});
  check_one("memory", Verdict::kFail, {{"memory_limit", 100e6}});
  check_one("shm", Verdict::kFail, {{"shm_bytes", 1e6}});
  check_one("shm", Verdict::kFail, {{"shm_inodes", 0}});
  check_one("tmp", Verdict::kFail, {{"tmp_bytes", 0}});
  check_one("disk", Verdict::kFail, {{"disk_error", "Read-only file system"}});
  check_one("disk", Verdict::kUnknown, {{"disk_hung", true}});
  check_one("nofile", Verdict::kWarn, {{"nofile", 256}});
  check_one("nproc", Verdict::kWarn, {{"nproc", 20}});
  check_one("pids", Verdict::kWarn, {{"pids", 20}});
  check_one("nproc", Verdict::kFail, {{"nproc", 20}, {"start_error", "it can start no process"}});
  check_one("clock", Verdict::kNote, {{"clock_synchronised", false}});
  check_one("clock", Verdict::kWarn, {{"clock_offset", -30.0}});
  check_one("names", Verdict::kWarn, {{"names_missing", {"c"}}});
  check_one("network", Verdict::kFail, {{"network_error", "no answer in time"}});
  check_one("rdma", Verdict::kFail,
            {{"rdma", {{{"device", "mlx5_0"}, {"port", "1"}, {"state", "DOWN"}}}}});
  check_one("pcie", Verdict::kWarn,
            {{"pcie", {{{"address", "0000:9a:00.0"}, {"width", 8}, {"max_width", 16}}}}});
  check_one("gpu_tool", Verdict::kUnknown, {{"gpu_tool", "hung"}});
  check_one("dcgm", Verdict::kFail, {{"dcgm", {{"PCIe", "Fail"}}}});
  check_one("machine", Verdict::kFail, {{"machine", "aarch64"}});
}

TEST_CASE("a host unlike the others is named") {
  auto hosts = hosts_with(Json::object());
  for (auto& host : hosts) host.facts["driver"] = host.host == "c" ? "550" : "560";
  const auto findings = judge_hosts(hosts);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].hosts == std::vector<std::string>{"c"});
  CHECK(findings[0].why == "its driver of the GPUs is 550, and that of most hosts is 560");
}

TEST_CASE("a slow processor is compared with hosts of the same model that are not busy") {
  auto hosts = hosts_with({{"cpu_speed", 500.0}});
  auto findings = judge_hosts(hosts);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "cpu_speed");
  CHECK(findings[0].verdict == Verdict::kFail);
  hosts[1].facts["run_delay_percent"] = 20.0;
  findings = judge_hosts(hosts);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "contention");
  hosts[1].facts["run_delay_percent"] = 0;
  hosts[1].facts["cpu_model"] = "another";
  CHECK(judge_hosts(hosts).empty());
}

TEST_CASE("a GPU's faults are findings") {
  const Json gpu = {{"uuid", "GPU-1"}, {"name", "H100"}};
  auto hosts = hosts_with(Json::object());
  for (auto& host : hosts) host.facts["gpus"] = {gpu, gpu};
  CHECK(judge_hosts(hosts).empty());
  const auto with = [&](const char* key, const Json& value) {
    auto changed = hosts;
    changed[2].facts["gpus"][0][key] = value;
    const auto findings = judge_hosts(changed);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].hosts == std::vector<std::string>{"c"});
    return cat(findings[0].id, " ", name_of(findings[0].verdict));
  };
  CHECK(with("ecc_uncorrected", 3) == "gpu_ecc fail");
  CHECK(with("remap_failed", true) == "gpu_remap fail");
  CHECK(with("remap_pending", true) == "gpu_remap warn");
  CHECK(with("throttle", 0x40) == "gpu_clocks warn");
  CHECK(with("memory_used", 8e9) == "gpu_memory warn");
  hosts[2].facts["gpus"] = Json::array({gpu});
  const auto findings = judge_hosts(hosts);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "gpu_count");
  CHECK(findings[0].verdict == Verdict::kFail);
}

TEST_CASE("values of any type are no failure") {
  for (const Json& value : {Json("text"), Json(nullptr), Json::array({1, "x"}),
                            Json::object({{"a", 1}}), Json(1e300)}) {
    const Json facts = healthy();
    for (const auto& [key, old] : facts.items()) {
      auto hosts = hosts_with({{key, value}});
      for (const Finding& finding : judge_hosts(hosts)) CHECK(!finding.hosts.empty());
    }
  }
}

std::vector<PairResult> all_pairs(int hosts, double speed) {
  std::vector<PairResult> pairs;
  for (int from = 0; from < hosts; ++from) {
    for (int to = from + 1; to < hosts; ++to) {
      pairs.push_back({.from = from,
                       .to = to,
                       .send = speed,
                       .receive = speed,
                       .latency_min = 50e-6,
                       .retransmits = 0});
    }
  }
  return pairs;
}

TEST_CASE("a slow host and a slow link are distinguished") {
  const auto hosts = hosts_with(Json::object(), 8);
  auto pairs = all_pairs(8, 1e9);
  CHECK(judge_pairs(hosts, pairs).empty());
  for (PairResult& pair : pairs) {
    if (pair.from == 3) pair.send = 2e8;
    if (pair.to == 3) pair.receive = 2e8;
  }
  auto findings = judge_pairs(hosts, pairs);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "bandwidth");
  CHECK(findings[0].verdict == Verdict::kFail);
  CHECK(findings[0].hosts == std::vector<std::string>{"d"});
  CHECK(findings[0].why == "it sends at 20% of the usual speed of the hosts");

  pairs = all_pairs(8, 1e9);
  for (PairResult& pair : pairs) {
    if (pair.from == 2 && pair.to == 5) pair.send = 1e8;
  }
  findings = judge_pairs(hosts, pairs);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "link_bandwidth");
  CHECK(findings[0].hosts == std::vector<std::string>{"c", "f"});

  // Measured again, it is not slow.
  PairResult again{.from = 2, .to = 5, .is_repeated = true, .send = 1e9};
  pairs.push_back(again);
  CHECK(judge_pairs(hosts, pairs).empty());
}

TEST_CASE("a host and a link with late answers are distinguished") {
  auto pairs = all_pairs(4, 1e9);
  for (PairResult& pair : pairs) {
    if (pair.from == 2 || pair.to == 2) pair.latency_min = 20e-3;
  }
  auto findings = judge_pairs(hosts_with(Json::object()), pairs);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "latency");
  CHECK(findings[0].verdict == Verdict::kWarn);
  CHECK(findings[0].hosts == std::vector<std::string>{"c"});
  CHECK(findings[0].why == "its answers take 20 ms, and 0.05 ms in most pairs");
  pairs = all_pairs(4, 1e9);
  pairs[0].latency_min = 20e-3;
  findings = judge_pairs(hosts_with(Json::object()), pairs);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].hosts == std::vector<std::string>{"a", "b"});
  pairs[0].latency_min = 140e-6;
  CHECK(judge_pairs(hosts_with(Json::object()), pairs).empty());
}

TEST_CASE("the load of a host that has no time for its threads is no failure of its links") {
  auto hosts = hosts_with(Json::object());
  for (HostFacts& host : hosts) host.facts["run_delay_percent"] = 70;
  auto pairs = all_pairs(4, 1e9);
  pairs[0].send = 1e8;
  pairs[5] = {.from = 2, .to = 3, .latency_min = 50e-6, .error = "no answer in time"};
  for (const Finding& finding : judge_pairs(hosts, pairs)) CHECK(finding.verdict < Verdict::kFail);
  // It does not excuse a missing connection.
  pairs[5].latency_min = -1;
  const auto findings = judge_pairs(hosts, pairs);
  CHECK(findings.front().id == "reach_pair");
  CHECK(findings.front().verdict == Verdict::kFail);
}

TEST_CASE("a host that can start no thread has no bad links") {
  auto hosts = hosts_with({{"start_error", "no thread can be started"}});
  auto pairs = all_pairs(4, 1e9);
  for (PairResult& pair : pairs) {
    if (pair.from == 1 || pair.to == 1) pair.error = "cannot connect";
  }
  CHECK(judge_pairs(hosts, pairs).empty());
}

TEST_CASE("a busy host is no slow host") {
  auto hosts = hosts_with({{"run_delay_percent", 60.0}}, 8);
  auto pairs = all_pairs(8, 1e9);
  for (PairResult& pair : pairs) {
    if (pair.from == 1) pair.send = 1e8;
  }
  for (const Finding& finding : judge_pairs(hosts, pairs)) CHECK(finding.verdict < Verdict::kWarn);
}

TEST_CASE("links that carry nothing are failures of the pair, or of a host that nobody reaches") {
  const auto hosts = hosts_with(Json::object());
  auto pairs = all_pairs(4, 1e9);
  pairs[0] = {.from = 0, .to = 1, .is_large_lost = true};
  auto findings = judge_pairs(hosts, pairs);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "mtu_lost");
  pairs[0] = {.from = 0, .to = 1, .error = "cannot connect"};
  findings = judge_pairs(hosts, pairs);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "reach_pair");
  for (PairResult& pair : pairs) {
    if (pair.from == 1 || pair.to == 1) pair.error = "cannot connect";
  }
  findings = judge_pairs(hosts, pairs);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "reach_peers");
  CHECK(findings[0].hosts == std::vector<std::string>{"b"});
}

TEST_CASE("the lines of a host's program are parsed, and no others") {
  CHECK(parse_doctor_line(R"({"facts": {"kernel": "6.1"}})")->facts->at("kernel") == "6.1");
  const auto pair =
      parse_doctor_line(R"({"pair": {"from": 1, "to": 2, "send": 1e9, "again": true}})")->pair;
  REQUIRE(pair);
  CHECK(pair->from == 1);
  CHECK(pair->is_repeated);
  CHECK(pair->receive == -1);
  CHECK(!parse_doctor_line("no").ok());
  CHECK(!parse_doctor_line(R"({"pair": {"from": "x"}})").ok());
  CHECK(!parse_doctor_line(R"({"facts": 1})")->facts);
  CHECK(!parse_doctor_line(R"({"pair": {"from": 1e300, "to": 1}})").ok());
  const std::string deep(100'000, '[');
  const auto nested =
      parse_doctor_line(cat(R"({"facts": {"a": )", deep, std::string(100'000, ']'), "}}"));
  CHECK(nested->facts->dump().size() < 100);
}

TEST_CASE("the report numbers findings, folds equal ones, and ends with a verdict") {
  Diagnosis diagnosis{.level = "net"};
  diagnosis.hosts = hosts_with({{"nofile", 256}});
  diagnosis.hosts[2].facts["nofile"] = 256;
  diagnosis.hosts[3].facts = nullptr;
  diagnosis.hosts[3].error = "connect: no route to host";
  diagnosis.pairs = all_pairs(3, 1e9);
  judge(diagnosis);
  const std::string text = diagnosis_text(diagnosis);
  CHECK(text.starts_with(
      "1. fail: host d: connect: no route to host\n2. warn: hosts b and c: a process may open 256 "
      "files; raise `nofile`"));
  CHECK(text.find("  a  ..-\n") != std::string::npos);
  CHECK(text.find("not ready: 1 failure, 1 warning (4 hosts, level net, 0.0 s)\n") !=
        std::string::npos);
  const Json json = Json::parse(diagnosis_json(diagnosis));
  CHECK(json["verdict"] == "fail");
  CHECK(json["hosts"]["d"]["checks"][0]["id"] == "reach");
  CHECK(json["pairs"].size() == 3);
  CHECK(has_failures(diagnosis));
}

}  // namespace
}  // namespace hvd::launcher
