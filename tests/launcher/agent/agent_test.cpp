// Tests of an agent whose job ends by itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "base/text.h"
#include "launcher/agent/agent_fixture.h"
#include "launcher/protocol/protocol.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {
constexpr auto kErr = OutputStream::kStderr;
}  // namespace

TEST_CASE("An agent runs true to its end") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job("");
  job.command = {"true"};
  CHECK(fixture.run(job) == "");
  CHECK(fixture.exits.at(0).code == 0);
  CHECK(fixture.exits.at(0).signal == 0);
  CHECK(fixture.lost.empty());
}

TEST_CASE("Each rank's exit code, signal and output arrive under its number") {
  AgentFixture fixture;
  const HostJob job = fixture.shell_job(
      "echo out $HOROVOD_RANK; echo err $HOROVOD_RANK >&2; "
      "[ $HOROVOD_RANK = 2 ] && kill -SEGV $$; exit $HOROVOD_RANK",
      3);
  CHECK(fixture.run(job) == "");
  CHECK(fixture.exits.at(0).code == 0);
  CHECK(fixture.exits.at(1).code == 1);
  CHECK(fixture.exits.at(2).signal == SIGSEGV);
  CHECK_FALSE(fixture.exits.at(1).by_agent);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(fixture.output[{rank, kOut}] == "out " + std::to_string(rank) + "\n");
    CHECK(fixture.output[{rank, kErr}] == "err " + std::to_string(rank) + "\n");
  }
  CHECK(fixture.ended.size() == 6);
}

TEST_CASE("Forty ranks are started side by side, and each lives until it ends by itself") {
  AgentFixture fixture;
  const HostJob job = fixture.shell_job("echo $HOROVOD_RANK; sleep 0.3; exit $HOROVOD_RANK", 40);
  CHECK(fixture.run(job) == "");
  REQUIRE(fixture.exits.size() == 40);
  for (int rank = 0; rank < 40; ++rank) {
    CHECK(fixture.exits.at(rank).code == rank);
    CHECK(fixture.exits.at(rank).signal == 0);
    CHECK(fixture.output[{rank, kOut}] == std::to_string(rank) + "\n");
  }
}

TEST_CASE("A megabyte of any bytes arrives intact on both streams") {
  AgentFixture fixture;
  // Prints every byte value, with few newlines.
  const HostJob job = fixture.shell_job(
      "i=0; while [ $i -lt 16 ]; do head -c 65536 /dev/urandom; i=$((i+1)); done >$FILE; "
      "cat $FILE & cat $FILE >&2; wait");
  HostJob with_file = job;
  const std::string file = "/tmp/horovod-agent-test-" + fixture.mark();
  with_file.environment.emplace_back("FILE", file);
  CHECK(fixture.run(with_file) == "");
  const std::string expected = read_file(file);
  std::filesystem::remove(file);
  CHECK(expected.size() == 1 << 20);
  CHECK((fixture.output[{0, kOut}] == expected));
  CHECK((fixture.output[{0, kErr}] == expected));
}

TEST_CASE("A rank has its environment, no input, no descriptor of the agent's, default signals") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job(
      "echo $SHARED $OWN $HOME; cat; ls /proc/self/fd; grep -E '^Sig(Blk|Ign)' /proc/self/status; "
      "cut -d ' ' -f 1,5 /proc/$$/stat; echo $HOROVOD_STORE; pwd");
  job.environment.insert(job.environment.end(), {{"SHARED", "1"}, {"OWN", "no"}, {"HOME", "/h"}});
  job.ranks[0].environment.emplace_back("OWN", "2");
  job.working_directory = "/usr";
  CHECK(fixture.run(job) == "");
  const auto lines = split(fixture.output[{0, kOut}], '\n');
  REQUIRE(lines.size() == 11);
  CHECK(lines[0] == "1 2 /h");
  // Descriptors 0 to 2, and the directory that ls reads.
  CHECK(lines[1] + lines[2] + lines[3] + lines[4] == "0123");
  CHECK(lines[5] == "SigBlk:\t0000000000000000");
  CHECK(lines[6] == "SigIgn:\t0000000000000000");
  const auto ids = split(trim(lines[7]), ' ');
  CHECK(ids.at(0) == ids.at(1));
  CHECK(lines[8].starts_with("agent:@horovod-store-"));
  CHECK(lines[9] == "/usr");
}

TEST_CASE("A rank reads its input to the end, and others read none") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job("cat; echo over", 2);
  job.ranks[1].has_input = true;
  REQUIRE(fixture.prepare(job).ok());
  // Input that arrives before the start waits for the start.
  fixture.link().send(Input{1, "one "});
  REQUIRE(fixture.start().ok());
  fixture.link().send(Input{1, "two\n"});
  CHECK(fixture.until([&] { return fixture.input_taken[1] == 8; }));
  CHECK(fixture.until([&] { return fixture.exits.count(0) == 1; }));
  CHECK(fixture.exits.count(1) == 0);
  fixture.link().send(Input{1, ""});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
  CHECK(fixture.output[{0, kOut}] == "over\n");
  CHECK(fixture.output[{1, kOut}] == "one two\nover\n");
}

TEST_CASE("Input that a rank does not read stays bounded, and is taken when it ends") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job("exec sleep 60");
  job.ranks[0].has_input = true;
  REQUIRE(fixture.begin(job).ok());
  const std::string much(kInputWindow, 'x');
  fixture.link().send(Input{0, much});
  // Writes as much as fits into a pipe.
  CHECK(fixture.until([&] { return fixture.input_taken[0] == much.size(); }));
  fixture.link().send(Input{0, much});
  fixture.pass(0.2);
  CHECK(fixture.input_taken[0] == much.size());
  fixture.link().send(Signal{SIGTERM});
  CHECK(fixture.until([&] { return fixture.input_taken[0] == 2 * much.size(); }));
  CHECK(fixture.until([&] { return fixture.is_finished; }));
}

TEST_CASE("An agent says where its running ranks and their children are") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job("[ $HOROVOD_RANK = 0 ] || exec sleep 59; sleep 58; true", 2);
  REQUIRE(fixture.begin(job).ok());
  CHECK(fixture.until([&] {
    fixture.link().send(Inspect{1, InspectDetail::kStacks});
    fixture.pass(0.05);
    return fixture.inspected.find("sleep 58") != std::string::npos &&
           fixture.inspected.find(": sleep 59\n") != std::string::npos &&
           fixture.inspected.find("sleeping") != std::string::npos;
  }));
  CHECK(fixture.inspected.starts_with("rank 0\n  pid "));
  CHECK(fixture.inspected.find("\nrank 1\n  pid ") != std::string::npos);
  // Shows the children of a waiting shell, without the shell.
  for (int look = 0; look < 2; ++look) {
    fixture.inspected.clear();
    fixture.link().send(Inspect{2, InspectDetail::kActivity});
    // An earlier question may be answered late.
    CHECK(fixture.until([&] { return fixture.inspected.starts_with("rank 0\n  sleeping in "); }));
    CHECK(fixture.inspected.find(" (sleep 58), no CPU time\nrank 1\n  sleeping in ") !=
          std::string::npos);
    CHECK(fixture.inspected.ends_with(" (sleep 59), no CPU time\n"));
  }
  fixture.link().send(TakeSample{3, SampleGroup::kMetrics | SampleGroup::kSigns});
  REQUIRE(fixture.until([&] { return !fixture.sampled.metrics.empty(); }));
  CHECK((fixture.sampled.signs.size() == 2 && fixture.sampled.steps.empty()));
  REQUIRE(fixture.sampled.metrics[0].ranks.size() == 2);
  for (const RankMetrics& rank : fixture.sampled.metrics[0].ranks) {
    CHECK(rank.activity == RankActivity::kRuns);
    CHECK((rank.has_joined == 0 && rank.has_counters == 0));
    CHECK(rank.usage.processes == (rank.rank == 0 ? 2 : 1));
    CHECK(rank.usage.threads == rank.usage.processes);
    CHECK(rank.usage.resident_bytes > 100'000);
    CHECK(rank.usage.minor_faults > 0);
    CHECK(rank.pid > 0);
    CHECK(rank.age_milliseconds < 60'000);
  }
  fixture.link().send(Run{7, 1, "", {"sh", "-c", "echo beside $HOROVOD_RANK; echo x >&2; exit 5"}});
  fixture.link().send(Run{8, 0, "", {"no-such-program"}});
  fixture.link().send(Run{9, 7, "", {"true"}});
  fixture.link().send(Run{10, 0, "", {"sh", "-c", "kill -9 $$"}});
  REQUIRE(fixture.until([&] { return fixture.ran.size() == 4; }));
  const auto ran = [&](uint32_t number) {
    return *std::find_if(fixture.ran.begin(), fixture.ran.end(),
                         [&](const ExecResult& each) { return each.number == number; });
  };
  CHECK(fixture.said[{7, false}] == "beside 1\n");
  CHECK((fixture.said[{7, true}] == "x\n" && ran(7).code == 5));
  CHECK((ran(8).code == 127 && ran(8).why.find("no-such-program") != std::string::npos));
  CHECK((ran(9).code == 1 && ran(9).why == "the rank has ended\n"));
  CHECK(ran(10).signal == SIGKILL);
  fixture.link().send(End{0});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
}

TEST_CASE(
    "The output of a command beside a rank comes at once, and no further ahead than is taken") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job("exec sleep 57");
  for (const char* name : {"PMI_PORT", "PMI_ID", "PMIX_RANK", "OMPI_MCA_schizo", "OTHER"})
    job.environment.emplace_back(name, "x");
  REQUIRE(fixture.begin(job).ok());
  // The variables with which an MPI program would take the rank's place are removed.
  const char* const shows = "env | grep -E 'PMI|OMPI|OTHER'; echo now; sleep 56";
  fixture.link().send(Run{1, 0, "", {"sh", "-c", shows}});
  CHECK(fixture.until([&] { return fixture.said[{1, false}] == "OTHER=x\nnow\n"; }));
  CHECK(fixture.ran.empty());

  fixture.is_taking = false;
  fixture.link().send(Run{2, 0, "", {"sh", "-c", "head -c 1000000 /dev/zero"}});
  CHECK(fixture.until([&] { return fixture.said[{2, false}].size() == kChunkWindow; }));
  fixture.pass(0.2);
  CHECK(fixture.said[{2, false}].size() == kChunkWindow);
  fixture.is_taking = true;
  fixture.link().send(OutputCredit{2, kChunkWindow});
  CHECK(fixture.until([&] { return fixture.ran.size() == 1; }));
  CHECK(fixture.said[{2, false}].size() == 1000000);

  // A background process of a command does not delay the command's end.
  fixture.link().send(Run{3, 0, "", {"sh", "-c", "sleep 55 & echo left; exit 3"}});
  CHECK(fixture.until([&] { return fixture.ran.size() == 2; }));
  CHECK((fixture.ran[1].code == 3 && fixture.said[{3, false}] == "left\n"));
  fixture.link().send(End{0});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
}

TEST_CASE("A command beside a rank ends when it is stopped, also one that ignores SIGTERM") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job("exec sleep 57");
  job.kill_grace_seconds = 0.3;
  REQUIRE(fixture.begin(job).ok());
  fixture.link().send(Run{1, 0, "", {"sh", "-c", "echo up; sleep 56 & wait"}});
  fixture.link().send(Run{2, 0, "", {"sh", "-c", "trap '' TERM; echo up; sleep 56; sleep 56"}});
  CHECK(fixture.until([&] {
    return fixture.said[{1, false}] == "up\n" && fixture.said[{2, false}] == "up\n" &&
           fixture.marked().size() >= 5;
  }));
  fixture.link().send(StopRun{1});
  fixture.link().send(StopRun{2});
  CHECK(fixture.until([&] { return fixture.ran.size() == 2; }));
  for (const ExecResult& ran : fixture.ran)
    CHECK(ran.signal == (ran.number == 1 ? SIGTERM : SIGKILL));
  // The rank still runs.
  CHECK(fixture.until([&] { return fixture.marked().size() == 1; }));
  CHECK(fixture.exits.empty());
  fixture.link().send(End{0});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
}

TEST_CASE("A program that cannot run is an error before anything starts") {
  AgentFixture fixture;
  const std::string folder = "/tmp/horovod-agent-test-" + fixture.mark();
  std::filesystem::create_directory(folder);
  const auto write = [&](const std::string& name, const std::string& text, bool is_executable) {
    std::ofstream(folder + "/" + name) << text;
    std::filesystem::permissions(folder + "/" + name, is_executable ? std::filesystem::perms(0755)
                                                                    : std::filesystem::perms(0644));
  };
  write("python3", "#!/bin/sh\n", true);
  write("plain", "#!/bin/sh\n", false);
  write("strange", "#!/no/such/interpreter -x\n", true);
  write("for_python", "#!/usr/bin/env python\n", true);
  write("fine", "#!/bin/sh\nexit 6\n", true);
  write("bare", "exit 7\n", true);
  struct Case {
    const char* program;
    const char* directory;
    const char* sentence;
  };
  const std::string path = folder;
  const Case cases[] = {
      {"python", nullptr,
       "program 'python' was not found on PATH (@), but 'python3' is there: "
       "write python3 in the command"},
      {"nothing", nullptr, "program 'nothing' was not found on PATH (@)"},
      {"plain", nullptr,
       "program 'plain' may not be executed: @/plain lacks the permission "
       "(chmod +x)"},
      {"./plain", nullptr,
       "program './plain' may not be executed: chmod +x it, or write its "
       "interpreter before it"},
      {"./", nullptr, "program './' is a directory"},
      {"/no/such", nullptr, "program '/no/such' cannot be run: No such file or directory"},
      {"strange", nullptr,
       "program 'strange' is a script whose interpreter "
       "'/no/such/interpreter' is missing or may not be executed"},
      {"for_python", nullptr,
       "program 'for_python' is a script for 'python': program 'python' was "
       "not found on PATH (@), but 'python3' is there: write python3 in the "
       "command"},
      {"fine", "/no/such/folder",
       "the working directory '/no/such/folder' does not exist on this host: create it there, or "
       "copy your current directory to every host with --stage ."},
      {"fine", "/etc/passwd", "the working directory '/etc/passwd' is not a directory"},
  };
  for (const Case& each : cases) {
    AgentFixture one;
    HostJob job = one.shell_job("");
    job.command = {each.program};
    job.working_directory = each.directory == nullptr ? folder : each.directory;
    job.environment.emplace_back("PATH", path);
    std::string expected = each.sentence;
    for (size_t at; (at = expected.find('@')) != std::string::npos;) {
      expected.replace(at, 1, folder);
    }
    CHECK(one.prepare(job).message() == expected);
  }
  for (const auto& [program, code] : {std::pair("fine", 6), std::pair("bare", 7)}) {
    AgentFixture one;
    HostJob job = one.shell_job("");
    job.command = {program};
    job.environment.emplace_back("PATH", path);
    CHECK(one.run(job) == "");
    CHECK(one.exits.at(0).code == code);
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("A program that the kernel refuses fails the start with one sentence") {
  AgentFixture fixture;
  const std::string file = "/tmp/horovod-agent-test-" + fixture.mark();
  std::ofstream(file) << "\x7f"
                         "ELF and then nothing";
  std::filesystem::permissions(file, std::filesystem::perms(0755));
  HostJob job = fixture.shell_job("", 20);
  job.command = {file};
  CHECK(fixture.run(job) ==
        cat("program '", file, "' cannot be run: ", file, " is not for this host's architecture"));
  std::filesystem::remove(file);
}

TEST_CASE("A reader that takes nothing delays neither control nor the lease, nor costs memory") {
  AgentFixture fixture;
  fixture.is_consuming = false;
  HostJob job = fixture.shell_job("[ $HOROVOD_RANK = 1 ] && { sleep 2; exit 3; }; exec yes", 4);
  job.lease_seconds = 1;
  REQUIRE(fixture.begin(job).ok());
  CHECK(fixture.until([&] { return fixture.exits.count(1) == 1; }));
  CHECK(fixture.exits.at(1).code == 3);
  CHECK(fixture.lost.empty());
  // Three ranks each write to one stream.
  CHECK(fixture.output_size == 3 * (256u << 10));
  const std::string status = read_file(cat("/proc/", fixture.agent(), "/status"));
  const size_t at = status.find("VmHWM:");
  REQUIRE(at != std::string::npos);
  const auto peak = split(trim(status.substr(at + 6, status.find("kB", at) - at - 6)), ' ');
  MESSAGE("the agent's memory, kB: ", peak.back());
#ifndef HVD_SANITIZED
  CHECK(*parse_int(peak.back()) < 16 << 10);
#endif
  fixture.link().send(End{1});
  fixture.pass(0.2);
  // The job ends only after the launcher has received the earlier output.
  CHECK_FALSE(fixture.is_finished);
  fixture.is_consuming = true;
  for (const int rank : {0, 2, 3}) fixture.link().consumed(rank, kOut, 256 << 10);
  CHECK(fixture.until([&] { return fixture.is_finished; }));
}

TEST_CASE("A flood of output does not delay what is urgent") {
  AgentFixture fixture;
  HostJob job = fixture.shell_job(
      "[ $HOROVOD_RANK = 1 ] && { echo $HOROVOD_STORE; sleep 1; exit 3; }; exec yes", 2);
  REQUIRE(fixture.begin(job).ok());
  const Deadline deadline = Deadline::after_seconds(200);
  CHECK(fixture.until([&] { return fixture.exits.count(1) == 1; }));
  MESSAGE("output, MB/s: ",
          static_cast<double>(fixture.output_size) / 1e6 / (200 - deadline.seconds_left()));
  fixture.link().send(End{1});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
}
