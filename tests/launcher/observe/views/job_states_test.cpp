#include "launcher/observe/views/job_states.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "launcher/observe/views/job_view.h"
#include "launcher/output/terminal_text.h"

namespace hvd::launcher {

using Json = nlohmann::json;

namespace {

JobFigures figures_of(std::vector<RankMetrics> ranks) {
  return {.pid = 7,
          .command = {"python3", "train.py"},
          .seconds = 1.5,
          .read_at = 1.2341,
          .rank = [ranks = std::move(ranks)](int number) -> const RankMetrics* {
            const auto index = static_cast<size_t>(number);
            return index < ranks.size() ? &ranks[index] : nullptr;
          },
          .init_wait = [](int) { return std::vector<int>(); },
          .operation_wait = [](int) { return std::string(); },
          .silence = [](const HostRun&) { return 0.0; }};
}

}  // namespace

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
  Json json = Json::parse(hosts_as_json(hosts));
  for (Json& host : json) {
    CHECK(host.at("seconds").get<double>() >= 0);
    host.erase("seconds");
  }
  CHECK(json == Json::parse(R"([
    {"host": "a", "state": "starting",
     "ranks": [{"rank": 0, "state": "in_job"}, {"rank": 1, "state": "ended", "signal": 9}]},
    {"host": "b", "state": "connecting", "stage": "authenticate",
     "ranks": [{"rank": 2, "state": "planned"}]}])"));
  const std::string line = job_as_json(hosts, figures_of({}));
  CHECK(line.ends_with("}\n"));
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(line.starts_with(
      R"({"pid":7,"command":["python3","train.py"],"seconds":1.5,"size":3,"read_at":1.234,"hosts":[{"host":"a")"));
}

TEST_CASE("figures of ranks stand beside their states, and name the ranks that others wait for") {
  HostTable hosts(*plan_slots({{"a", "", 3}}, {}));
  HostRun& host = hosts.host(0);
  host.to(HostState::kConnecting, HostCause::kReach);
  host.to(HostState::kPreparing, HostCause::kConnected);
  host.to(HostState::kHeld, HostCause::kPrepared);
  host.to(HostState::kStarting, HostCause::kOrder);
  for (RankRun* rank : host.ranks()) rank->to(RankState::kStarting, RankCause::kOrder);
  hosts.rank(0).enter_job();
  hosts.rank(1).enter_job();
  hosts.rank(2).enter_init("s");
  RankMetrics ahead{.activity = RankActivity::kRuns, .has_counters = 1, .pid = 12};
  ahead.age_milliseconds = 2000;
  ahead.counts = {.steps = 3, .operations = 5, .bytes = 100, .pending = 1};
  ahead.usage.resident_bytes = 4096;
  RankMetrics behind{.rank = 1, .activity = RankActivity::kStopped, .has_counters = 1, .pid = 13};
  behind.counts.operations = 5;
  JobFigures figures = figures_of({ahead, behind});
  figures.init_wait = [](int) { return std::vector<int>{1}; };
  figures.operation_wait = [](int rank) { return rank == 0 ? "rank 1" : ""; };
  const auto job = read_job(job_as_json(hosts, figures));
  REQUIRE(job.ok());
  const std::vector<RankView>& ranks = job->hosts.at(0).ranks;
  CHECK(job->read_at == 1.234);
  CHECK(ranks.at(0).pid == 12);
  CHECK(ranks.at(0).seconds == 2);
  CHECK(ranks.at(0).memory == 4096);
  CHECK(ranks.at(0).steps == 3);
  CHECK(ranks.at(0).waits_for == "rank 1");
  CHECK(ranks.at(1).is_stopped);
  CHECK(ranks.at(1).waits_for.empty());
  CHECK(ranks.at(2).waits_for == "rank 1 to call hvd.init()");
  CHECK(ranks.at(2).pid == -1);
  CHECK(job_as_table(*job, 0) ==
        "horovodrun, pid 7, 3 ranks: python3 train.py\n"
        "RANK  HOST  PID  STATE     ELAPSED  CPU  MEMORY  WAITS FOR\n"
        "   0  a      12  in_job   00:00:02   0%    4.0K  rank 1\n"
        "   1  a      13  stopped  00:00:00   0%      0B\n"
        "   2  a       -  in_init         -    -       -  rank 1 to call hvd.init()\n");
}

TEST_CASE("a table has a line for hosts that start") {
  JobView job{.pid = 7, .command = {"x"}, .size = 2};
  job.hosts.push_back({.name = "a", .state = "held", .ranks = {{.rank = 0, .state = "planned"}}});
  job.hosts.push_back({.name = "b",
                       .state = "connecting",
                       .stage = "authenticate",
                       .seconds = 3.2,
                       .ranks = {{.rank = 1, .state = "planned"}}});
  CHECK(job_as_table(job, 0).ends_with(
      "   1  b       -  planned        -    -       -\nhosts ready 1/2; b: authenticate 3 s\n"));
  job.hosts[1].state = "starting";
  CHECK(job_as_table(job, 0).find("hosts ready") == std::string::npos);
}

TEST_CASE("a job with GPUs has a column for them") {
  JobView job{.pid = 7, .command = {"x"}, .size = 2};
  job.hosts.push_back({.name = "a", .state = "running"});
  job.hosts[0].ranks = {{.rank = 0, .state = "in_job", .gpu_share = 0.97, .gpu_memory = 12LL << 30},
                        {.rank = 1, .state = "in_job"}};
  CHECK(job_as_table(job, 0) ==
        "horovodrun, pid 7, 2 ranks: x\n"
        "RANK  HOST  PID  STATE   ELAPSED  CPU  MEMORY      GPU  WAITS FOR\n"
        "   0  a       -  in_job        -    -       -  97% 12G\n"
        "   1  a       -  in_job        -    -       -        -\n");
}

TEST_CASE("a table that is not cut has the whole command") {
  const JobView job{.pid = 7, .command = {"sh", std::string(3000, 'x')}};
  CHECK(job_as_table(job, 0).starts_with("horovodrun, pid 7, 0 ranks: sh " +
                                         std::string(3000, 'x') + "\n"));
}

TEST_CASE("a host with a hostile name cannot write to the terminal, and lines fit its width") {
  JobView job{.pid = 7, .command = {"sh", "-c", "\x1b]0;x\a"}, .size = 1};
  job.hosts.push_back(
      {.name = "a\x1b[2J", .state = "running", .ranks = {{.rank = 0, .state = "in_job"}}});
  const std::string table = job_as_table(job, 20);
  CHECK(table.find('\x1b') == std::string::npos);
  CHECK(table.find('\a') == std::string::npos);
  std::string_view rest = table;
  while (!rest.empty()) CHECK(take_line(rest).size() <= 20);
}

TEST_CASE("colors show what needs attention, and move no column") {
  JobView job{.pid = 7, .command = {"x"}, .size = 5, .slowest = 1};
  job.hosts.push_back({.name = "a",
                       .state = "running",
                       .ranks = {{.rank = 0, .state = "ended", .code = 0},
                                 {.rank = 1, .state = "in_job"},
                                 {.rank = 2, .state = "in_job", .is_stopped = true}}});
  job.hosts.push_back({.name = "b",
                       .state = "running",
                       .silence = 3,
                       .ranks = {{.rank = 3, .state = "ended", .code = 3}}});
  job.hosts.push_back({.name = "c", .state = "lost", .ranks = {{.rank = 4, .state = "in_job"}}});
  const std::string table = job_as_table(job, 0, true);
  CHECK(table ==
        "horovodrun, pid 7, 5 ranks: x\n"
        "RANK  HOST  PID  STATE    ELAPSED  CPU  MEMORY  WAITS FOR\n"
        "   0  a       -  exit 0         -    -       -\n"
        "   \x1b[33m1\x1b[0m  a       -  in_job         -    -       -\n"
        "   2  a       -  \x1b[31mstopped\x1b[0m        -    -       -\n"
        "   3  \x1b[31mb\x1b[0m       -  \x1b[31mexit 3\x1b[0m         -    -       -\n"
        "   4  \x1b[31mc\x1b[0m       -  \x1b[31mlost\x1b[0m           -    -       -\n"
        "host \x1b[31mb: no answer for 3 s\x1b[0m\n");
  const std::string plain = job_as_table(job, 0);
  CHECK(plain.find('\x1b') == std::string::npos);
  std::string_view rest = table;
  std::string_view without = plain;
  while (!rest.empty()) CHECK(colored_width_of(take_line(rest)) == take_line(without).size());
}

TEST_CASE("numbers of tables are short") {
  CHECK(time_span(131.9) == "00:02:11");
  CHECK(time_span(90061) == "1 d 01:01:01");
  CHECK(time_span(-1) == "-");
  CHECK(size_text(999) == "999B");
  CHECK(size_text(1000) == "1.0K");
  CHECK(size_text(1.5 * (1 << 30)) == "1.5G");
  CHECK(size_text(-1) == "-");
  CHECK(cut("aé€b", 3) == "aé€");
  CHECK(width_of("aé€b") == 4);
}

TEST_CASE("wide characters take two columns, and combining ones none") {
  CHECK(width_of("日本 ok") == 7);
  CHECK(width_of("e\u0301\U0001f680") == 3);
  CHECK(width_of("\xff\xc3") == 2);
  CHECK(cut("a日b", 2) == "a");
  CHECK(cut("a日b", 3) == "a日");
  CHECK(cut("e\u0301x", 1) == "e\u0301");
  CHECK(cut_colored("\x1b[36m日日\x1b[0m", 3) == "\x1b[36m日\x1b[0m");
}

TEST_CASE("a process of an elastic job is named beside its rank, if it has one") {
  HostTable hosts(*plan_slots({{"a", "", 2}}, {}));
  const int members[] = {1};
  hosts.set_members(3, members);
  const Json json = Json::parse(job_as_json(hosts, figures_of({})));
  CHECK(json.at("generation") == 3);
  CHECK(json.at("hosts")[0].at("ranks") == Json::parse(R"([{"process": 0, "state": "planned"},
                        {"process": 1, "rank": 0, "state": "planned"}])"));
}

}  // namespace hvd::launcher
