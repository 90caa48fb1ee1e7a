// A link that breaks while ranks run: it continues over another connection.
#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/text.h"
#include "launcher/agent/agent_fixture.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

const std::string kToken = "00112233445566778899aabbccddeeff";
// Prints more lines than the link buffers, some of them while the link is broken.
constexpr int kLines = 200000;
const std::string kCount = cat("seq 1 ", kLines, "; exit 3");

std::string numbers() {
  std::string text;
  for (int i = 1; i <= kLines; ++i) text += cat(i, "\n");
  return text;
}

void check_job_survives(AgentFixture& fixture) {
  REQUIRE(fixture.begin(fixture.shell_job(kCount)).ok());
  const auto& seen = fixture.output[{0, OutputStream::kStdout}];
  for (int cuts = 1; cuts <= 5; ++cuts) {
    const size_t before = seen.size();
    CHECK(fixture.until([&] { return seen.size() > before; }));
    fixture.cut();
    CHECK(fixture.until([&] { return fixture.returns >= cuts || fixture.is_finished; }));
  }
  CHECK(fixture.until([&] { return fixture.is_finished || !fixture.lost.empty(); }));
  CHECK(fixture.lost.empty());
  CHECK((seen == numbers()));
  CHECK(fixture.exits.at(0).code == 3);
  CHECK(fixture.returns > 0);
}

void check_last_messages_arrive(AgentFixture& fixture) {
  REQUIRE(fixture.begin(fixture.shell_job("echo first; kill -STOP $$; echo last; exit 3")).ok());
  const auto& seen = fixture.output[{0, OutputStream::kStdout}];
  REQUIRE(fixture.until([&] { return seen == "first\n"; }));
  // From here on, the launcher reads nothing.
  for (auto ranks = fixture.marked(); !ranks.empty(); ranks = fixture.marked()) {
    for (const pid_t rank : ranks) send_signal(rank, SIGCONT);
    ::usleep(1000);
  }
  ::usleep(200000);  // the agent writes meanwhile
  fixture.cut();
  CHECK(fixture.until([&] { return fixture.is_finished || !fixture.lost.empty(); }));
  CHECK(fixture.lost.empty());
  CHECK(seen == "first\nlast\n");
  CHECK(fixture.exits[0].code == 3);
}

HostJob long_job(const AgentFixture& fixture) {
  HostJob job = fixture.shell_job("sleep 1000");
  job.lease_seconds = 60;
  return job;
}

void check_ranks_end(AgentFixture& fixture) {
  CHECK(fixture.until([&] { return fixture.marked().empty(); }));
  CHECK(fixture.until([&] { return !is_alive(fixture.guardian()); }));
}

}  // namespace

TEST_CASE("The output of an agent that dials again is complete, in order and without repetition") {
  AgentFixture fixture(kToken, kToken);
  REQUIRE_FALSE(fixture.admitted_name().empty());
  check_job_survives(fixture);
}

TEST_CASE("The link of an agent whose program is started again continues") {
  AgentFixture fixture{AgentFixture::Respawned()};
  check_job_survives(fixture);
}

TEST_CASE("An agent that joined replaces a connection that is silent for a third of its lease") {
  AgentFixture fixture(kToken, kToken);
  HostJob job = fixture.shell_job(kCount);
  job.lease_seconds = 15;
  REQUIRE(fixture.begin(job).ok());
  const auto& seen = fixture.output[{0, OutputStream::kStdout}];
  REQUIRE(fixture.until([&] { return !seen.empty(); }));
  fixture.mute();
  CHECK(fixture.until([&] { return fixture.is_finished || !fixture.lost.empty(); }));
  CHECK(fixture.lost.empty());
  CHECK((seen == numbers()));
  CHECK(fixture.exits.at(0).code == 3);
  CHECK(fixture.returns == 1);
}

TEST_CASE("The last messages of an agent that dials again arrive after they were lost") {
  AgentFixture fixture(kToken, kToken);
  check_last_messages_arrive(fixture);
}

TEST_CASE("The same holds for an agent whose program is started again") {
  AgentFixture fixture{AgentFixture::Respawned()};
  check_last_messages_arrive(fixture);
}

TEST_CASE("A launcher parts from an agent once it knows that its last message has arrived") {
  AgentFixture fixture{AgentFixture::Respawned()};
  REQUIRE(fixture.run(fixture.shell_job("true")).empty());
  fixture.wait_for_end();
  CHECK_FALSE(fixture.link().loss().ok());
  CHECK(fixture.lost.empty());
}

TEST_CASE("Input reaches a rank once, across a cut") {
  AgentFixture fixture{AgentFixture::Respawned()};
  HostJob job = fixture.shell_job("while read line; do echo got $line; done");
  job.ranks[0].has_input = true;
  REQUIRE(fixture.begin(job).ok());
  fixture.link().send(Input{0, "one\n"});
  fixture.cut();
  fixture.link().send(Input{0, "two\n"});
  fixture.link().send(Input{0, ""});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
  CHECK(fixture.output[{0, OutputStream::kStdout}] == "got one\ngot two\n");
}

TEST_CASE("An agent whose launcher does not know its session ends its ranks") {
  AgentFixture fixture(kToken, kToken);
  REQUIRE(fixture.begin(long_job(fixture)).ok());
  fixture.forget_session();
  fixture.cut();
  check_ranks_end(fixture);
  CHECK(fixture.returns == 1);
}

TEST_CASE(
    "An agent at whose launcher's port nothing listens ends its ranks long before the lease") {
  AgentFixture fixture(kToken, kToken);
  REQUIRE(fixture.begin(long_job(fixture)).ok());
  fixture.close_port();
  fixture.cut();
  check_ranks_end(fixture);
}

TEST_CASE("An agent that no process hands a connection ends its ranks long before the lease") {
  AgentFixture fixture{AgentFixture::Respawned()};
  fixture.may_return = false;
  REQUIRE(fixture.begin(long_job(fixture)).ok());
  fixture.cut();
  check_ranks_end(fixture);
}

TEST_CASE(
    "A program that is started again where the agent was killed says so, and the host is lost") {
  AgentFixture fixture{AgentFixture::Respawned()};
  REQUIRE(fixture.begin(long_job(fixture)).ok());
  send_signal(fixture.agent(), SIGKILL);
  CHECK(fixture.until([&] { return !fixture.lost.empty(); }));
  REQUIRE_FALSE(fixture.lost.empty());
  CHECK(fixture.lost[0].find("the agent there has ended") != std::string::npos);
  check_ranks_end(fixture);
}

TEST_CASE("A cut longer than the lease loses the host, with a sentence") {
  AgentFixture fixture{AgentFixture::Respawned()};
  fixture.may_return = false;
  HostJob job = long_job(fixture);
  job.lease_seconds = 1;
  REQUIRE(fixture.begin(job).ok());
  fixture.cut();
  CHECK(fixture.until([&] { return !fixture.lost.empty(); }));
  REQUIRE_FALSE(fixture.lost.empty());
  const bool names_lease = fixture.lost[0].find("did not resume within 1 s") != std::string::npos ||
                           fixture.lost[0].find("did not answer for 1 s") != std::string::npos;
  CHECK_MESSAGE(names_lease, fixture.lost[0]);
  check_ranks_end(fixture);
}
