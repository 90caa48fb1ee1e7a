#include "launcher/protocol/protocol.h"

#include <doctest/doctest.h>

#include <limits>

#include "horovod/version.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

HostJob job() {
  HostJob job;
  job.command = {"python3", "train.py", ""};
  job.ranks = {{4, {}}};
  job.lease_seconds = 7.5;
  return job;
}

std::string refusal(ByteView bytes) {
  const auto decoded = decode(bytes);
  return decoded.ok() ? "" : decoded.error().message();
}

}  // namespace

TEST_CASE("the version of an agent of another release is read, whatever follows it") {
  const Bytes own = encode(AgentHello{HVD_VERSION, "build", 3, "b", "boot", 1000, 64});
  REQUIRE(decode(own).ok());
  CHECK(encode(*decode(own)) == own);
  Bytes bytes = encode(AgentHello{"0.1.2", "build", 3, "b", "boot", 1000, 64});
  bytes.resize(bytes.size() - 6);
  const auto message = decode(bytes);
  REQUIRE(message.ok());
  CHECK(std::get<AgentHello>(*message).version == "0.1.2");
  CHECK(check_agent_version(HVD_VERSION).ok());
  CHECK(check_agent_version("0.1.2").message().starts_with(
      "its agent is horovod-agent 0.1.2, and this launcher is horovodrun " HVD_VERSION "; "));
}

TEST_CASE("An unknown message is refused with its number") {
  const auto bytes = ByteWriter().put(uint16_t{999}).take();
  CHECK(refusal(bytes) ==
        "a control message of the unknown kind 999: the far side is of another release");
}

TEST_CASE("A message that is too long is refused") {
  Bytes bytes = encode(Prepare{job(), 1, 2});
  bytes.push_back(std::byte{0});
  CHECK(refusal(bytes) == "an order to prepare has bytes after its end");
}

TEST_CASE("A job or a message that makes no sense is refused") {
  HostJob none = job();
  none.command.clear();
  CHECK(refusal(encode(Prepare{none, 1, 1})) == "the job has no command");
  HostJob endless = job();
  endless.lease_seconds = std::numeric_limits<double>::quiet_NaN();
  CHECK(refusal(encode(Prepare{endless, 1, 1})) != "");
  CHECK(refusal(encode(End{-1})) != "");
  CHECK(refusal(encode(Pong{9, -1})) != "");
  CHECK(refusal(encode(Run{})) != "");
  CHECK(refusal(encode(OpenSession{{}, -1})) == "the wait of a session is not a number of seconds");
}

TEST_CASE("Streams of output do not meet those of the store") {
  CHECK(output_stream(0, OutputStream::kStdout) == kFirstOutputStream);
  CHECK(output_stream(1, OutputStream::kStderr) == kFirstOutputStream + 3);
  CHECK(output_stream(kMaxRanks - 1, OutputStream::kStderr) < kFirstStoreStream);
}
