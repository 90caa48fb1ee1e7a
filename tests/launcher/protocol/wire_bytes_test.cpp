// Agents and launchers of one release have different builds: the bytes of a message never change, and reading them
// restores every member.
#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/secrets/hmac.h"
#include "base/secrets/secret.h"
#include "launcher/protocol/protocol.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

// One message of each kind, with different values in all members.
std::vector<Message> messages() {
  const Nonce nonce{std::byte{5}, std::byte{6}};
  const Proof proof{std::byte{7}, std::byte{8}};
  const SessionKey key{std::byte{9}, std::byte{10}};
  HostJob job;
  job.job = 0xfedcba9876543210;
  job.generation = 1;
  job.host = 2;
  job.hosts = 3;
  job.host_name = "a";
  job.command = {"python3", "train.py", ""};
  job.python = "/usr/bin/python3";
  job.package_folder = "/srv/horovodrun/site";
  job.package = {"0123", "1.2.3", "x86_64", "2.34", "3.4.30", 1ull << 24, "bin/p"};
  job.shipping = Shipping::kEverywhere;
  job.agent_dir = "/var/agent";
  job.has_environment = true;
  job.environment_dir = "/scratch";
  job.working_directory = "/srv";
  job.environment = {{"PATH", "/bin"}, {"EMPTY", ""}};
  job.ranks = {{4, {{"HOROVOD_RANK", "4"}}, true}, {5, {}}};
  job.remote_init = "module load x";
  job.is_compared = true;
  job.lease_seconds = 7.5;
  job.host_timeout_seconds = 8.5;
  job.hold_after_seconds = 3.5;
  job.is_staged = true;
  job.staged_path = "code";
  job.insecure_compat = true;
  job.kill_grace_seconds = 6.5;
  job.leave_grace_seconds = 30;
  job.end_signal = 2;
  const MasterCandidates candidates{29500, nonce, {{"10.77.0.1", "eth0"}, {"127.0.0.1", "lo"}}};
  return {AgentHello{"1.2.3", "build", 3, "b", "boot", 1000, 64},
          Prepare{job, 11, 12},
          Start{{{{"MASTER_ADDR", "10.77.0.1"}}, "eth0"}},
          Signal{10},
          End{2.5, 15},
          Ping{1ull << 40, 1},
          Suspend{},
          Prepared{not_found("no python"), candidates, {{"Python", "3.11.2"}}, 3},
          Started{internal_error("x")},
          Exited{{.rank = 3,
                  .code = 4,
                  .signal = 5,
                  .by_agent = true,
                  .after_grace = true,
                  .out_of_memory = true,
                  .master_port_user = 7,
                  .cpu_seconds = 8,
                  .changes = {{"RANK", "1", "2"}}}},
          Finished{"sudo", 1},
          Pong{1ull << 41, 2.5},
          Suspended{},
          Failed{"why"},
          Challenge{nonce},
          Answer{nonce, "host 3", proof, "1.2.3"},
          Admission{proof},
          TestReachability{candidates},
          ReachabilityTested{{{"10.77.0.1", "eth0"}}},
          Input{7, std::string("a\0b", 3)},
          InputTaken{7, 65536},
          Inspect{3, InspectDetail::kStacks},
          Inspected{3, "rank 0\n"},
          Joined{3, 1, 2, "g0/1/", "1,3", 1},
          Run{4, 1, "0-2", {"ls", "-l"}},
          ExecResult{4, 1, 3, 9, "why"},
          StagePart{StageKind::kFile, 0640, "lib/a.py", "x = 1"},
          Staged{7, invalid_argument("no")},
          OutputChunk{4, 1, 1, "out"},
          OutputCredit{4, 17},
          StopRun{4},
          Ending{"why", 1},
          Signalled{10},
          OpenSession{key, 5},
          Reattach{key, nonce},
          Resume{key, nonce, 1ull << 40, proof},
          Resumed{7, proof},
          EndRank{3, 2.5},
          Leaving{"why"},
          PmixReport{3, "1", 1, "why"},
          PackageWanted{},
          EnvironmentWanted{"3.11.2", "x86_64", "2.36"},
          EnvironmentOffer{"a list", 1ull << 40, "2.28", key},
          EnvironmentFilesWanted{candidates, 3, "why"},
          EnvironmentSource{"a", candidates},
          StackToolOffer{{"0123", "1.2.3", "x86_64", "2.34", "3.4.30", 1ull << 23, ""},
                         "/usr/bin/py-spy"},
          StackToolWanted{},
          InspectLate{3, 4, 50'000},
          LongestWait{1'000'000},
          TakeSample{3, SampleGroup::kMetrics | SampleGroup::kSteps},
          Sampled{3,
                  {.metrics = {{.step_age = 5, .ranks = {{.rank = 4}}, .remark = "why"}},
                   .signs = {{.rank = 5, .changes = {{"RANK", "1", "2"}}}},
                   .places = {{.rank = 6, .library = "MPI"}},
                   .steps = {{.rank = 7, .last = {{1, 2, 3, 4}}, .awaited = "b"}},
                   .announced = {{.rank = 8, .joins = 9}}}}};
}

// The beginning of the SHA-256 of each message, by its kind.
const std::map<int, std::string> kDigests = {
    {1, "4ff37287392105c2"},  {2, "15d32b7ee17e695b"},  {3, "1fb706632d3256d1"},
    {4, "d574531ed89550aa"},  {5, "b4ebbd0dad864b71"},  {6, "d001c88f02f176a3"},
    {7, "a691e329bfba59ee"},  {8, "7f1f5c6a2922e2e9"},  {9, "aa41fce31cf6ce40"},
    {10, "96dede93e5cc7248"}, {11, "5698a58f9a82107a"}, {12, "bf60e4349cace6bc"},
    {13, "f566cc6fccc65736"}, {14, "0b88eab2e907a685"}, {15, "3e6b3ede303fe060"},
    {16, "af78519b5e858477"}, {17, "e371f1d38bb3bd63"}, {18, "6241a7411dff7016"},
    {19, "bab115dbd19544e8"}, {20, "a98685b784200d18"}, {21, "11fa0cb03b4d6149"},
    {22, "ba0aaa3d475355ac"}, {23, "80e749a882e5af1e"}, {24, "fdbacd4f3aa6431c"},
    {25, "4c87d0915864d746"}, {26, "f77e280f269e2418"}, {27, "43e5050578c02c73"},
    {28, "1f9d316b787117dd"}, {29, "9f16d7e9539dc335"}, {30, "fa9b7594ef0c512d"},
    {31, "7b89294c50830599"}, {32, "c8a2fa785a2871e9"}, {33, "763d00e4d3aa7b1c"},
    {34, "b7fda3077074da2a"}, {35, "fa9b9c30071c11e1"}, {36, "0b201bde7d8ab7b8"},
    {37, "bf35e90735771146"}, {38, "b8ed71e985498712"}, {39, "56649f6fad737015"},
    {40, "87619fbbcb54c5c8"}, {41, "7c186033295a1138"}, {42, "7df5eb47e168ad8a"},
    {43, "51495f332f947a0a"}, {44, "eb20c81d95cb156d"}, {45, "952f523ffe271350"},
    {60, "4a2a7b898f79e4e4"}, {61, "360b2e7116fd877c"}, {70, "c46ccdb3717edcb3"},
    {71, "2b99f639f6852a96"}, {72, "731d71a5f76a2ece"}, {73, "45ed00b2adf3bf04"},
};

}  // namespace

TEST_CASE("The bytes of each message are those of earlier builds, and arrive as they were sent") {
  std::set<size_t> seen;
  for (const Message& message : messages()) {
    const Bytes bytes = encode(message);
    const int kind = ByteReader(bytes).get<uint16_t>();
    CAPTURE(kind);
    seen.insert(message.index());
    const auto expected = kDigests.find(kind);
    REQUIRE(expected != kDigests.end());
    CHECK(to_hex(sha256(bytes)).substr(0, 16) == expected->second);
    const auto decoded = decode(bytes);
    REQUIRE_MESSAGE(decoded.ok(), decoded.status().message());
    CHECK(decoded->index() == message.index());
    // Only the version of another release is read.
    CHECK((encode(*decoded) == bytes) != std::holds_alternative<AgentHello>(message));
    if (!std::holds_alternative<Prepare>(message)) continue;
    for (size_t size = 0; size < bytes.size(); ++size) {
      CHECK_FALSE(decode(ByteView(bytes).first(size)).ok());
    }
  }
  CHECK(seen.size() == std::variant_size_v<Message>);
}
