// However a job ends, no process of it survives on the host.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "launcher/agent/agent_fixture.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

// A rank whose processes tend to survive: a double-forked child in its own session that ignores
// SIGTERM, a child that keeps the rank's pipes open, and the rank itself.
constexpr const char* kStubborn =
    "(setsid sh -c 'trap \"\" TERM INT HUP; sleep 1000; sleep 1000' >/dev/null 2>&1 &); "
    "(trap '' TERM; sleep 1000 &); "
    "echo ready; ";

bool start_stubborn(AgentFixture& fixture, const HostJob& job) {
  REQUIRE(fixture.begin(job).ok());
  const bool is_up = fixture.until([&] {
    for (const RankSpec& spec : job.ranks) {
      if (fixture.output[{spec.rank, kOut}] != "ready\n") return false;
    }
    return true;
  });
  // Wait until the shells have started their sleeps.
  return is_up && fixture.until([&] { return fixture.marked().size() >= 5 * job.ranks.size(); });
}

bool is_gone(AgentFixture& fixture, double seconds = 30) {
  return fixture.until([&] { return fixture.marked().empty(); }, seconds);
}

// Returns whether all processes end while the launcher's loop does not run, so that it sends
// nothing.
bool is_gone_undriven(const AgentFixture& fixture) {
  const Deadline deadline = Deadline::after_seconds(200);
  while (!fixture.marked().empty() && !deadline.passed()) ::usleep(50'000);
  return fixture.marked().empty();
}

char state_of(pid_t pid) {
  const std::string stat = read_file(cat("/proc/", pid, "/stat"));
  const size_t close = stat.rfind(')');
  return close == std::string::npos ? 'X' : stat[close + 2];
}

bool is_any_stopped(const AgentFixture& fixture) {
  return std::ranges::any_of(fixture.marked(), [](pid_t pid) { return state_of(pid) == 'T'; });
}

bool all_are_stopped_undriven(const AgentFixture& fixture) {
  const auto is_stopped = [](pid_t pid) { return state_of(pid) == 'T'; };
  const Deadline deadline = Deadline::after_seconds(200);
  while (!std::ranges::all_of(fixture.marked(), is_stopped) && !deadline.passed()) ::usleep(50'000);
  return std::ranges::all_of(fixture.marked(), is_stopped);
}

// Ends the program for which the agent's shell waits.
void end_sleep_of_rank(const AgentFixture& fixture) {
  for (const pid_t rank : children_of(fixture.agent())) {
    for (const pid_t child : children_of(rank)) send_signal(child, SIGTERM);
  }
}

}  // namespace

TEST_CASE("SIGKILL of the agent leaves nothing, however it hides") {
  AgentFixture fixture;
  REQUIRE(start_stubborn(fixture, fixture.shell_job(cat(kStubborn, "sleep 1000; :"), 2)));
  send_signal(fixture.agent(), SIGKILL);
  CHECK(is_gone(fixture));
  CHECK(fixture.until([&] { return !is_alive(fixture.guardian()); }));
  CHECK(fixture.until([&] { return fixture.lost.size() == 1; }));
}

TEST_CASE("SIGKILL of the guardian ends the agent and leaves nothing") {
  AgentFixture fixture;
  REQUIRE(start_stubborn(fixture, fixture.shell_job(cat(kStubborn, "sleep 1000; :"))));
  const pid_t agent = fixture.agent();
  send_signal(fixture.guardian(), SIGKILL);
  CHECK(is_gone(fixture));
  CHECK(fixture.until([&] { return !is_alive(agent); }));
  REQUIRE(fixture.lost.size() == 1);
  CHECK(fixture.lost[0] == "the watchdog above the agent was killed");
}

TEST_CASE("The end of the link leaves nothing") {
  AgentFixture fixture;
  REQUIRE(start_stubborn(fixture, fixture.shell_job(cat(kStubborn, "sleep 1000; :"), 2)));
  fixture.link().close();
  CHECK(is_gone(fixture));
  CHECK(fixture.until([&] { return !is_alive(fixture.guardian()); }));
  CHECK(fixture.lost.empty());
}

TEST_CASE("A signal to the agent or to its guardian ends the job with a reason") {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    for (const bool to_guardian : {false, true}) {
      AgentFixture fixture;
      REQUIRE(start_stubborn(fixture, fixture.shell_job(cat(kStubborn, "sleep 1000; :"))));
      send_signal(to_guardian ? fixture.guardian() : fixture.agent(), number);
      CHECK(is_gone(fixture));
      CHECK(fixture.until([&] { return fixture.is_finished; }));
      CHECK(fixture.endings == std::vector{cat("the agent was ended by signal ", number)});
      CHECK_FALSE(fixture.is_ended_by_scheduler);
      CHECK(fixture.lost.empty());
    }
  }
}

TEST_CASE("SIGTERM to the agent of an elastic job lets the ranks go on for a time") {
  for (const bool is_ended_in_time : {false, true}) {
    AgentFixture fixture;
    HostJob job = fixture.shell_job(cat(kStubborn, "sleep 1000; :"));
    job.leave_grace_seconds = is_ended_in_time ? 60 : 2;
    REQUIRE(start_stubborn(fixture, job));
    send_signal(fixture.agent(), SIGTERM);
    CHECK(fixture.until([&] { return !fixture.leavings.empty(); }));
    CHECK(fixture.leavings == std::vector<std::string>{"its agent got signal 15"});
    CHECK(fixture.endings.empty());
    CHECK(fixture.exits.empty());
    if (is_ended_in_time) fixture.link().send(End{5});
    CHECK(fixture.until([&] { return fixture.is_finished; }));
    const std::vector<std::string> late = {
        "the agent got signal 15, and the ranks have not committed within 2 s (--leave-grace)"};
    CHECK(fixture.endings == (is_ended_in_time ? std::vector<std::string>() : late));
    CHECK(fixture.marked().empty());
  }
}

TEST_CASE("A second SIGTERM to the agent of an elastic job ends it at once") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job(cat(kStubborn, "sleep 1000; :"));
  job.leave_grace_seconds = 60;
  REQUIRE(start_stubborn(fixture, job));
  send_signal(fixture.agent(), SIGTERM);
  CHECK(fixture.until([&] { return !fixture.leavings.empty(); }));
  send_signal(fixture.agent(), SIGTERM);
  CHECK(fixture.until([&] { return fixture.is_finished; }));
  CHECK(fixture.endings == std::vector<std::string>{"the agent was ended by signal 15"});
}

namespace {

// Prints the name of each signal that it gets.
constexpr std::string_view kCounting =
    "for s in USR1 HUP INT; do trap \"echo $s\" $s; done; trap 'echo TERM; echo saved; exit 0' "
    "TERM; "
    "echo ready; while :; do sleep 0.01; done";

size_t count_of(const std::string& text, std::string_view word) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++count;
  return count;
}

// Ranks come first, because the search for them takes long on a busy machine.
std::vector<pid_t> every_process(const AgentFixture& fixture) {
  std::vector<pid_t> processes = fixture.marked();
  processes.push_back(fixture.guardian());
  processes.push_back(fixture.agent());
  return processes;
}

}  // namespace

TEST_CASE("A signal to every process of a host leaves the agent alone, and a rank gets it once") {
  for (const int number : {SIGUSR1, SIGHUP, SIGINT}) {
    AgentFixture fixture;
    REQUIRE(fixture.begin(fixture.shell_job(std::string(kCounting))).ok());
    std::string& said = fixture.output[{0, kOut}];
    REQUIRE(fixture.until([&] { return said == "ready\n"; }));
    const std::vector<pid_t> processes = every_process(fixture);
    if (number == SIGUSR1)
      fixture.link().send(Signal{number});  // the launcher got the signal as well
    fixture.pass(0.02);
    for (const pid_t pid : processes) send_signal(pid, number);
    const std::string name = number == SIGUSR1 ? "USR1\n" : number == SIGHUP ? "HUP\n" : "INT\n";
    CHECK(fixture.until([&] { return said.ends_with(name); }));
    fixture.link().send(End{5});
    CHECK(fixture.until([&] { return fixture.is_finished; }));
    CHECK(said == cat("ready\n", name, "TERM\nsaved\n"));
    CHECK(fixture.endings.empty());
  }
}

TEST_CASE("A signal for the ranks that the agent alone gets, or its guardian, is passed on") {
  for (const bool to_guardian : {false, true}) {
    AgentFixture fixture;
    REQUIRE(fixture.begin(fixture.shell_job(std::string(kCounting))).ok());
    std::string& said = fixture.output[{0, kOut}];
    REQUIRE(fixture.until([&] { return said == "ready\n"; }));
    send_signal(to_guardian ? fixture.guardian() : fixture.agent(), SIGUSR1);
    CHECK(fixture.until([&] { return said == "ready\nUSR1\n"; }));
    CHECK(fixture.until([&] { return fixture.signalled == std::vector{SIGUSR1}; }));
  }
}

TEST_CASE("After a SIGTERM to every process what ranks say arrives, and each gets it once") {
  for (const bool to_launcher : {false, true}) {
    ::setenv("SLURM_JOB_ID", "41", 1);
    AgentFixture fixture;
    ::unsetenv("SLURM_JOB_ID");
    HostJob job = fixture.shell_job(std::string(kCounting));
    job.kill_grace_seconds = 10;
    REQUIRE(fixture.begin(job).ok());
    std::string& said = fixture.output[{0, kOut}];
    REQUIRE(fixture.until([&] { return said == "ready\n"; }));
    const std::vector<pid_t> processes = every_process(fixture);
    if (to_launcher) fixture.link().send(End{10, SIGTERM});
    fixture.pass(0.02);
    for (const pid_t pid : processes) send_signal(pid, SIGTERM);
    CHECK(fixture.until([&] { return fixture.is_finished; }));
    const std::vector<std::string> endings = {
        "Slurm has sent SIGTERM to every process of its job 41 there, as when the job is cancelled "
        "or "
        "has reached its time limit, or its script has ended"};
    if (!to_launcher) CHECK(fixture.endings == endings);
    if (!to_launcher) CHECK(fixture.is_ended_by_scheduler);
    CHECK(count_of(said, "TERM\n") == 1);
    CHECK(said.ends_with("saved\n"));
    CHECK(fixture.lost.empty());
    CHECK(fixture.exits.at(0).signal == 0);
  }
}

TEST_CASE("A job may be ended by SIGINT") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job(
      "trap 'echo INT; exit 3' INT; trap 'echo TERM' TERM; echo ready; "
      "while :; do sleep 0.01; done");
  job.end_signal = SIGINT;
  REQUIRE(fixture.begin(job).ok());
  CHECK(fixture.until([&] { return fixture.output[{0, kOut}] == "ready\n"; }));
  fixture.link().send(End{5});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
  CHECK(fixture.output[{0, kOut}] == "ready\nINT\n");
  CHECK_FALSE(fixture.exits.at(0).after_grace);
}

TEST_CASE("A launcher that falls silent costs its lease, and the job ends") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job(cat(kStubborn, "sleep 1000; :"));
  job.lease_seconds = 3;
  REQUIRE(start_stubborn(fixture, job));
  fixture.pass(5);  // with pings during the whole sleep
  CHECK(fixture.marked().size() >= 4);
  // From here on the launcher's loop does not run and sends nothing.
  CHECK(is_gone_undriven(fixture));
  CHECK(fixture.until([&] { return fixture.lost.size() == 1; }));
  CHECK(fixture.lost.at(0) == "the launcher sent nothing for 3 s");
}

TEST_CASE("Ranks that others may replace stop while the launcher is silent, with their children") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job(cat(kStubborn, "sleep 1000; echo on; exit 5"));
  job.hold_after_seconds = 1;
  REQUIRE(start_stubborn(fixture, job));
  // From here on the launcher's loop does not run and sends nothing.
  CHECK(all_are_stopped_undriven(fixture));
  REQUIRE(fixture.until([&] { return !is_any_stopped(fixture); }));
  end_sleep_of_rank(fixture);
  CHECK(fixture.until([&] { return fixture.exits.contains(0); }));
  CHECK(fixture.exits.at(0).code == 5);
  CHECK(fixture.lost.empty());
}

TEST_CASE("Ranks that others may replace are killed without grace when the lease is over") {
  AgentFixture fixture;
  HostJob job =
      fixture.shell_job("trap 'sleep 1000' TERM; echo ready; while :; do sleep 0.01; done");
  job.hold_after_seconds = 1;
  job.lease_seconds = 3;
  job.kill_grace_seconds = 1000;
  REQUIRE(fixture.begin(job).ok());
  REQUIRE(fixture.until([&] { return fixture.output[{0, kOut}] == "ready\n"; }));
  CHECK(is_gone_undriven(fixture));
  CHECK(fixture.until([&] { return fixture.lost.size() == 1; }));
  REQUIRE(fixture.standstills.size() == 1);
  CHECK(fixture.standstills[0] >= 3);
}

TEST_CASE(
    "A host that is given up kills its ranks without grace once it is reached, and confirms it") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job("trap 'sleep 1000' TERM; echo ready; while :; do echo x; done");
  job.hold_after_seconds = 1;
  job.kill_grace_seconds = 1000;
  REQUIRE(fixture.begin(job).ok());
  REQUIRE(fixture.until([&] { return !fixture.output[{0, kOut}].empty(); }));
  const pid_t agent = fixture.agent();
  send_signal(agent, SIGSTOP);
  bool has_ended = false;
  fixture.link().give_up([&] { has_ended = true; });
  fixture.output.clear();
  fixture.pass(0.2);
  CHECK_FALSE(has_ended);
  send_signal(agent, SIGCONT);
  CHECK(fixture.until([&] { return has_ended; }));
  CHECK(fixture.marked().empty());
  CHECK(fixture.output.empty());
  CHECK((fixture.exits.empty() && fixture.lost.empty() && !fixture.is_finished));
}

TEST_CASE("A suspended launcher may be silent for longer than its lease") {
  AgentFixture suspended;
  HostJob job = suspended.shell_job("sleep 1000; echo on; exit 5");
  job.lease_seconds = 3;
  REQUIRE(suspended.begin(job).ok());
  REQUIRE(suspended.until([&] { return suspended.marked().size() == 2; }));
  REQUIRE(suspended.suspend().ok());
  // A second launcher falls silent later; its job's end shows that the first lease is over too.
  AgentFixture silent;
  HostJob lost_job = silent.shell_job("sleep 1000");
  lost_job.lease_seconds = job.lease_seconds;
  REQUIRE(silent.begin(lost_job).ok());
  CHECK(is_gone_undriven(silent));
  REQUIRE(suspended.marked().size() == 2);
  for (const pid_t pid : suspended.marked()) {
    for (const pid_t child : children_of(pid)) send_signal(child, SIGTERM);
  }
  CHECK(suspended.until([&] { return suspended.is_finished; }));
  CHECK(suspended.output[{0, kOut}] == "on\n");
  CHECK(suspended.exits.at(0).code == 5);
  CHECK(suspended.lost.empty());
}

TEST_CASE("After a suspension the lease holds again") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job("sleep 1000");
  job.lease_seconds = 1;
  REQUIRE(fixture.begin(job).ok());
  REQUIRE(fixture.suspend().ok());
  fixture.pass(4);  // the launcher runs on and sends pings
  CHECK(is_gone_undriven(fixture));
}

TEST_CASE("A host that does not answer is lost after the lease") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job("sleep 1000");
  job.lease_seconds = 1;
  REQUIRE(fixture.begin(job).ok());
  const pid_t agent = fixture.agent();
  send_signal(agent, SIGSTOP);
  CHECK(fixture.until([&] { return !fixture.lost.empty(); }));
  CHECK(fixture.lost.at(0) == "the host did not answer for 1 s");
  send_signal(agent, SIGCONT);
  CHECK(is_gone(fixture));
}

TEST_CASE("A stopped agent costs its lease also when the launcher is gone") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job(cat(kStubborn, "sleep 1000; :"));
  job.lease_seconds = 2;
  REQUIRE(start_stubborn(fixture, job));
  send_signal(fixture.agent(), SIGSTOP);
  // The launcher's loop does not run and sends nothing.
  CHECK(is_gone_undriven(fixture));
}

TEST_CASE("A job that was stopped as a whole for longer than its lease goes on") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job("sleep 1000; echo on; exit 5");
  job.lease_seconds = 4;
  REQUIRE(fixture.begin(job).ok());
  REQUIRE(fixture.until([&] { return fixture.marked().size() == 2; }));
  const pid_t agent = fixture.agent();
  send_signal(fixture.guardian(), SIGSTOP);
  send_signal(agent, SIGSTOP);
  ::sleep(12);  // a lease that must not end has no event
  send_signal(fixture.guardian(), SIGCONT);
  send_signal(agent, SIGCONT);
  // Let the agent run before the launcher.
  ::usleep(500'000);
  fixture.pass(3);
  REQUIRE(fixture.marked().size() == 2);
  for (const pid_t pid : fixture.marked()) {
    for (const pid_t child : children_of(pid)) send_signal(child, SIGTERM);
  }
  CHECK(fixture.until([&] { return fixture.is_finished; }));
  CHECK(fixture.exits.at(0).code == 5);
  CHECK(fixture.lost.empty());
}

TEST_CASE("The count of pings decides whether a host is lost, and not the clock") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job("sleep 1000");
  job.lease_seconds = 0;
  job.host_timeout_seconds = 3;
  REQUIRE(fixture.begin(job).ok());
  send_signal(fixture.agent(), SIGSTOP);
  CHECK(fixture.until([&] { return fixture.silences.size() == 1; }));
  CHECK(fixture.silences == std::vector<double>{1});
  ::sleep(5);  // the launcher is stopped, so no ping of it counts as missing
  fixture.pass(0.5);
  CHECK(fixture.lost.empty());
  const int answers = fixture.answers;
  send_signal(fixture.agent(), SIGCONT);
  CHECK(fixture.until([&] { return fixture.answers > answers; }));
  fixture.silences.clear();
  send_signal(fixture.agent(), SIGSTOP);
  CHECK(fixture.until([&] { return !fixture.lost.empty(); }));
  CHECK(fixture.silences == std::vector<double>{1, 2});
  CHECK(fixture.lost.at(0) == "the host did not answer for 3 s");
  send_signal(fixture.agent(), SIGCONT);
  CHECK(is_gone(fixture));
}

TEST_CASE(
    "Ending sends SIGTERM, after the grace SIGKILL, and reports ranks as ended by the agent") {
  AgentFixture fixture;
  const HostJob job =
      fixture.shell_job(cat(kStubborn,
                            "[ $HOROVOD_RANK = 1 ] && trap 'exit 9' TERM || trap '' TERM; "
                            "sleep 1000 & wait; wait; wait"),
                        2);
  REQUIRE(start_stubborn(fixture, job));
  const Deadline deadline = Deadline::after_seconds(200);
  fixture.link().send(End{5});
  CHECK(fixture.until([&] { return fixture.exits.count(1) == 1; }));
  CHECK(fixture.exits.count(0) == 0);  // rank 0 still has its grace period
  CHECK(fixture.exits.at(1).code == 9);
  CHECK(fixture.exits.at(1).by_agent);
  CHECK(fixture.until([&] { return fixture.is_finished; }));
  CHECK(fixture.exits.at(0).signal == SIGKILL);
  CHECK(fixture.exits.at(0).by_agent);
  CHECK(fixture.exits.at(0).after_grace);
  CHECK_FALSE(fixture.exits.at(1).after_grace);
  CHECK(deadline.seconds_left() < 195.5);
  CHECK(fixture.marked().empty());
}

TEST_CASE("A rank that is ended alone gets SIGTERM, then SIGKILL, and the others go on") {
  AgentFixture fixture;
  const HostJob job = fixture.shell_job(
      cat(kStubborn, "[ $HOROVOD_RANK = 1 ] && trap '' TERM; sleep 1000 & wait; wait"), 3);
  REQUIRE(start_stubborn(fixture, job));
  fixture.link().send(EndRank{0, 60});
  CHECK(fixture.until([&] { return fixture.exits.count(0) == 1; }));
  CHECK(fixture.exits.at(0).signal == SIGTERM);
  CHECK(fixture.exits.at(0).by_agent);
  fixture.link().send(EndRank{1, 0.3});
  CHECK(fixture.until([&] { return fixture.exits.count(1) == 1; }));
  CHECK(fixture.exits.at(1).signal == SIGKILL);
  CHECK(fixture.exits.at(1).by_agent);
  fixture.pass(0.2);
  CHECK(fixture.exits.count(2) == 0);
  CHECK_FALSE(fixture.is_finished);
  fixture.link().send(End{5});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
  CHECK(fixture.marked().empty());
}

TEST_CASE("A second order to end with a shorter grace hastens the end") {
  AgentFixture fixture;
  const HostJob job = fixture.shell_job(cat(kStubborn, "trap '' TERM; sleep 1000; :"));
  REQUIRE(start_stubborn(fixture, job));
  fixture.link().send(End{60});
  fixture.pass(0.3);
  CHECK_FALSE(fixture.is_finished);
  fixture.link().send(End{0});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
}

TEST_CASE("A stopped rank can be ended") {
  AgentFixture fixture;
  const HostJob job = fixture.shell_job("echo ready; kill -STOP $$; :");
  REQUIRE(fixture.begin(job).ok());
  CHECK(fixture.until([&] { return fixture.output[{0, kOut}] == "ready\n"; }));
  fixture.pass(0.1);
  fixture.link().send(End{60});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
  CHECK(fixture.exits.at(0).signal == SIGTERM);
}

TEST_CASE("A rank's end is announced at once while a forked child keeps its pipes open") {
  AgentFixture fixture;
  const HostJob job = fixture.shell_job(
      "[ $HOROVOD_RANK = 0 ] && { (sleep 1000 &); echo last words; exit 3; }; sleep 1000", 2);
  REQUIRE(fixture.begin(job).ok());
  CHECK(fixture.until([&] { return fixture.exits.count(0) == 1; }));
  CHECK(std::ranges::count(fixture.ended, std::pair{0, kOut}) == 0);
  CHECK(fixture.exits.at(0).code == 3);
  CHECK_FALSE(fixture.exits.at(0).by_agent);
  CHECK(fixture.until([&] { return fixture.output[{0, kOut}] == "last words\n"; }));
  CHECK(fixture.exits.size() == 1);
  fixture.link().send(End{1});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
  CHECK(fixture.exits.at(1).by_agent);
  CHECK(fixture.marked().empty());
}

TEST_CASE("A process that the last rank leaves running belongs to the job and is ended") {
  AgentFixture fixture;
  CHECK(fixture.run(fixture.shell_job(cat(kStubborn, "exit 0"))) == "");
  CHECK(fixture.exits.at(0).code == 0);
  CHECK(fixture.marked().empty());
}

TEST_CASE("An agent that is asked to end before it started anything has finished") {
  AgentFixture fixture;
  REQUIRE(fixture.prepare(fixture.shell_job("sleep 1000")).ok());
  fixture.link().send(End{5});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
  CHECK(fixture.exits.empty());
}

TEST_CASE("A signal reaches the whole process group of each rank") {
  AgentFixture fixture;
  const HostJob job = fixture.shell_job(
      "trap 'wait; exit 4' USR1; (trap 'echo child; exit' USR1; echo ready; sleep 1000 & wait) "
      "& wait; wait",
      2);
  REQUIRE(fixture.begin(job).ok());
  CHECK(fixture.until([&] {
    return fixture.output[{0, kOut}] == "ready\n" && fixture.output[{1, kOut}] == "ready\n";
  }));
  fixture.link().send(Signal{SIGUSR1});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
  CHECK(fixture.exits.at(0).code == 4);
  CHECK_FALSE(fixture.exits.at(1).by_agent);
  CHECK(fixture.output[{1, kOut}].find("child") != std::string::npos);
}

TEST_CASE("A rank whose launcher is gone can write until the grace is over") {
  AgentFixture fixture;
  const std::string file = cat("/tmp/horovod-agent-test-", fixture.mark());
  HostJob job = fixture.shell_job(cat(
      "trap 'i=0; while [ $i -lt 2000 ]; do echo cleaning up; echo again >&2; i=$((i+1)); done; "
      "echo done >",
      file, "; exit' TERM; echo ready; sleep 1000 & wait"));
  job.kill_grace_seconds = 8;
  REQUIRE(fixture.begin(job).ok());
  CHECK(fixture.until([&] { return fixture.output[{0, kOut}] == "ready\n"; }));
  fixture.link().close();
  CHECK(is_gone(fixture));
  CHECK(read_file(file) == "done\n");
  ::unlink(file.c_str());
}
