// What an agent does for a job that ends by itself.
#include <doctest/doctest.h>

#include "launcher/agent/agent_fixture.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {
constexpr auto kOut = OutputStream::kStdout;
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
      "[ $HOROVOD_RANK = 2 ] && kill -SEGV $$; exit $HOROVOD_RANK", 3);
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
