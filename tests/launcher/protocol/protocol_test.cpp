#include "launcher/protocol/protocol.h"

#include <doctest/doctest.h>

#include <limits>

#include "horovod/version.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

HostJob job() {
  HostJob job;
  job.job = 0xfedcba9876543210;
  job.generation = 1;
  job.host = 2;
  job.host_name = "a";
  job.command = {"python3", "train.py", ""};
  job.package_folder = "/srv/horovodrun/site";
  job.package = {"0123", "1.2.3", "x86_64", "2.34", "3.4.30", 1ull << 24, "bin/p"};
  job.shipping = Shipping::kNever;
  job.agent_dir = "/var/agent";
  job.has_environment = true;
  job.environment_dir = "/scratch";
  job.working_directory = "/srv";
  job.environment = {{"PATH", "/bin"}, {"EMPTY", ""}};
  job.ranks = {{4, {{"HOROVOD_RANK", "4"}}}, {5, {}}};
  job.remote_init = "module load x";
  job.is_compared = true;
  job.lease_seconds = 7.5;
  job.hold_after_seconds = 3.5;
  job.kill_grace_seconds = 0;
  job.insecure_compat = true;
  job.leave_grace_seconds = 30;
  job.end_signal = 2;
  return job;
}

template <typename T>
T again(const T& message) {
  const auto decoded = decode(encode(message));
  REQUIRE_MESSAGE(decoded.ok(), decoded.status().message());
  REQUIRE(std::holds_alternative<T>(*decoded));
  return std::get<T>(*decoded);
}

std::string refusal(ByteView bytes) {
  const auto decoded = decode(bytes);
  return decoded.ok() ? "" : decoded.error().message();
}

}  // namespace

TEST_CASE("An order to prepare carries the whole job") {
  const Prepare read = again(Prepare{job(), 11, 12});
  const HostJob expected = job();
  CHECK(read.output_credit == 11);
  CHECK(read.store_credit == 12);
  CHECK(read.job.job == expected.job);
  CHECK(read.job.generation == 1);
  CHECK(read.job.host == 2);
  CHECK(read.job.host_name == "a");
  CHECK(read.job.command == expected.command);
  CHECK(read.job.package_folder == "/srv/horovodrun/site");
  CHECK(read.job.package.name == "0123");
  CHECK(read.job.package.version == "1.2.3");
  CHECK(read.job.package.machine == "x86_64");
  CHECK(read.job.package.glibc == "2.34");
  CHECK(read.job.package.glibcxx == "3.4.30");
  CHECK(read.job.package.size == 1ull << 24);
  CHECK(read.job.package.program == "bin/p");
  CHECK(read.job.shipping == Shipping::kNever);
  CHECK(read.job.agent_dir == "/var/agent");
  CHECK((read.job.has_environment && read.job.environment_dir == "/scratch"));
  CHECK(read.job.working_directory == "/srv");
  CHECK(read.job.environment == expected.environment);
  REQUIRE(read.job.ranks.size() == 2);
  CHECK(read.job.ranks[0].rank == 4);
  CHECK(read.job.ranks[0].environment == expected.ranks[0].environment);
  CHECK(read.job.ranks[1].environment.empty());
  CHECK(read.job.remote_init == "module load x");
  CHECK(read.job.is_compared);
  CHECK(read.job.lease_seconds == 7.5);
  CHECK(read.job.hold_after_seconds == 3.5);
  CHECK(read.job.kill_grace_seconds == 0);
  CHECK(read.job.insecure_compat);
  CHECK(read.job.leave_grace_seconds == 30);
  CHECK(read.job.end_signal == 2);
}

TEST_CASE("the version of an agent of another release is read, whatever follows it") {
  Bytes bytes = encode(AgentHello{"0.1.2", "build", 3, "b", "boot", 1000, 64});
  bytes.resize(bytes.size() - 6);
  const auto message = decode(bytes);
  REQUIRE(message.ok());
  CHECK(std::get<AgentHello>(*message).version == "0.1.2");
  CHECK(check_agent_version(HVD_VERSION).ok());
  CHECK(check_agent_version("0.1.2").message().starts_with(
      "its agent is horovod-agent 0.1.2, and this launcher is horovodrun " HVD_VERSION "; "));
}

TEST_CASE("Every other message arrives as it was sent") {
  const AgentHello hello = again(AgentHello{HVD_VERSION, "build", 3, "b", "boot", 1000, 64});
  CHECK(hello.version == HVD_VERSION);
  CHECK(hello.build == "build");
  CHECK(hello.pid == 3);
  CHECK(hello.hostname == "b");
  CHECK(hello.machine == "boot");
  CHECK(hello.uid == 1000);
  CHECK(hello.cpus == 64);
  CHECK(again(Prepared{not_found("no python"), {}, {}}).status == not_found("no python"));
  CHECK(again(Prepared{}).status.ok());
  CHECK(again(Started{internal_error("x")}).status == internal_error("x"));
  const RankExit exit = again(Exited{{.rank = 3,
                                      .code = 4,
                                      .signal = 5,
                                      .by_agent = true,
                                      .after_grace = true,
                                      .master_port_user = 7}})
                            .exit;
  CHECK(exit.rank == 3);
  CHECK(exit.code == 4);
  CHECK(exit.signal == 5);
  CHECK(exit.by_agent);
  CHECK(exit.after_grace);
  CHECK(exit.master_port_user == 7);
  CHECK(again(Finished{"sudo"}).left_behind == "sudo");
  CHECK(again(Signal{15}).number == 15);
  CHECK(again(End{2.5, 15}).grace_seconds == 2.5);
  CHECK(again(End{2.5, 15}).signal == 15);
  CHECK(again(Ending{"why"}).sentence == "why");
  CHECK(again(Ending{"why", 1}).is_by_scheduler == 1);
  CHECK(again(Leaving{"why"}).sentence == "why");
  again(PackageWanted{});
  const EnvironmentFilesWanted files =
      again(EnvironmentFilesWanted{{.port = 7, .nonce = {}, .addresses = {}}, 3, "why"});
  CHECK((files.server.port == 7 && files.first == 3 && files.why == "why"));
  const EnvironmentSource source =
      again(EnvironmentSource{"a", {.port = 7, .nonce = {}, .addresses = {}}});
  CHECK((source.host == "a" && source.server.port == 7));
  const EnvironmentWanted wanted = again(EnvironmentWanted{"3.11.2", "x86_64", "2.36"});
  CHECK((wanted.python == "3.11.2" && wanted.machine == "x86_64" && wanted.glibc == "2.36"));
  const EnvironmentOffer offer =
      again(EnvironmentOffer{"a list", 1ull << 40, "2.28", {std::byte{1}}});
  CHECK((offer.list == "a list" && offer.space == 1ull << 40 && offer.glibc == "2.28"));
  CHECK(offer.key[0] == std::byte{1});
  const PmixReport pmix = again(PmixReport{3, "1", 1, "why"});
  CHECK((pmix.rank == 3 && pmix.start == "1" && pmix.has_met == 1 && pmix.failure == "why"));
  CHECK(again(EndRank{3, 2.5}).rank == 3);
  CHECK(again(EndRank{3, 2.5}).grace_seconds == 2.5);
  CHECK(again(Signalled{10}).number == 10);
  CHECK(again(Ping{9, 1}).number == 9);
  CHECK(again(Ping{9, 1}).continues_ranks == 1);
  CHECK(again(Pong{9, 2.5}).number == 9);
  CHECK(again(Pong{9, 2.5}).silent_seconds == 2.5);
  CHECK_FALSE(decode(encode(Pong{9, -1})).ok());
  CHECK(again(Failed{"why"}).sentence == "why");
  const Nonce nonce{std::byte{5}};
  CHECK(again(Challenge{nonce}).nonce == nonce);
  const Answer answer = again(Answer{nonce, "host 3", {std::byte{6}}, "0.1.2"});
  CHECK(answer.nonce == nonce);
  CHECK(answer.name == "host 3");
  CHECK(answer.version == "0.1.2");
  CHECK(answer.proof == Proof{std::byte{6}});
  CHECK(again(Admission{nonce}).proof == nonce);
  const Variables addresses = {{"10.77.0.1", "eth0"}, {"127.0.0.1", "lo"}};
  const MasterCandidates candidates = again(TestReachability{{29500, nonce, addresses}}).candidates;
  CHECK(candidates.port == 29500);
  CHECK(candidates.nonce == nonce);
  CHECK(candidates.addresses == addresses);
  const Prepared prepared = again(Prepared{{}, candidates, {{"Python", "3.11.2"}}, 3});
  CHECK(prepared.threads == 3);
  CHECK(prepared.candidates.addresses == addresses);
  CHECK(prepared.versions == Variables{{"Python", "3.11.2"}});
  CHECK(again(ReachabilityTested{addresses}).reached == addresses);
  const StartOrder order = again(Start{{{{"MASTER_ADDR", "10.77.0.1"}}, "eth0"}}).order;
  CHECK(order.environment == Variables{{"MASTER_ADDR", "10.77.0.1"}});
  CHECK(order.interface == "eth0");
  CHECK(again(Input{7, std::string("a\0b", 3)}).bytes == std::string("a\0b", 3));
  CHECK(again(Input{7, ""}).rank == 7);
  CHECK(again(InputTaken{7, 65536}).size == 65536);
  CHECK(again(Inspect{3, InspectDetail::kStacks}).detail == InspectDetail::kStacks);
  CHECK(again(Inspected{3, "rank 0\n"}).text == "rank 0\n");
  const Run run = again(Run{4, 1, "0-2", {"ls", "-l"}});
  CHECK(run.command == std::vector<std::string>{"ls", "-l"});
  CHECK((run.number == 4 && run.rank == 1 && run.ranks == "0-2"));
  const ExecResult ran = again(ExecResult{4, 1, 3, 9, "why"});
  CHECK((ran.code == 3 && ran.signal == 9 && ran.why == "why"));
  CHECK_FALSE(decode(encode(Run{})).ok());
  const OutputChunk said = again(OutputChunk{4, 1, 1, std::string("a\0b", 3)});
  CHECK((said.number == 4 && said.rank == 1 && said.is_error == 1));
  CHECK(said.bytes == std::string("a\0b", 3));
  const OutputCredit taken = again(OutputCredit{4, 17});
  CHECK((taken.number == 4 && taken.size == 17));
  CHECK(again(StopRun{4}).number == 4);
  const StagePart part = again(StagePart{StageKind::kFile, 0640, "lib/a.py", "x = 1"});
  CHECK((part.kind == StageKind::kFile && part.mode == 0640));
  CHECK((part.path == "lib/a.py" && part.bytes == "x = 1"));
  const Staged staged = again(Staged{7, invalid_argument("no")});
  CHECK((staged.taken == 7 && staged.status.message() == "no"));
  const Joined joined = again(Joined{3, 0, 2, "g0/1/", "1,3", 1});
  CHECK(std::array{joined.rank, joined.world_rank, joined.world_size} == std::array{3, 0, 2});
  CHECK((joined.start == "g0/1/" && joined.ranks == "1,3" && joined.has_met == 1));
  again(Suspend{});
  again(Suspended{});
}

TEST_CASE("The messages of a session arrive as they were sent") {
  const SessionKey key{std::byte{1}};
  const Nonce nonce{std::byte{2}};
  const Proof proof{std::byte{3}};
  const OpenSession session = again(OpenSession{key, 5});
  CHECK((session.key == key));
  CHECK(session.wait_seconds == 5);
  const Reattach order = again(Reattach{key, nonce});
  CHECK((order.session == key && order.nonce == nonce));
  const Resume offer = again(Resume{key, nonce, 1ull << 40, proof});
  CHECK((offer.session == key && offer.nonce == nonce && offer.proof == proof));
  CHECK(offer.received == 1ull << 40);
  const Resumed answer = again(Resumed{7, proof});
  CHECK((answer.received == 7 && answer.proof == proof));
  CHECK(refusal(encode(OpenSession{key, -1})) ==
        "the wait of a session is not a number of seconds");
}

TEST_CASE("An unknown message is refused with its number") {
  const auto bytes = ByteWriter().put(uint16_t{999}).take();
  CHECK(refusal(bytes) ==
        "a control message of the unknown kind 999: the far side is of another release");
}

TEST_CASE("A message that is cut short or too long is refused") {
  Bytes bytes = encode(Prepare{job(), 1, 2});
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK(refusal(ByteView(bytes).first(size)) != "");
  }
  bytes.push_back(std::byte{0});
  CHECK(refusal(bytes) == "an order to prepare has bytes after its end");
}

TEST_CASE("A job that makes no sense is refused") {
  HostJob none = job();
  none.command.clear();
  CHECK(refusal(encode(Prepare{none, 1, 1})) == "the job has no command");
  HostJob endless = job();
  endless.lease_seconds = std::numeric_limits<double>::quiet_NaN();
  CHECK(refusal(encode(Prepare{endless, 1, 1})) != "");
  CHECK(refusal(encode(End{-1})) != "");
}

TEST_CASE("Streams of output do not meet those of the store") {
  CHECK(output_stream(0, OutputStream::kStdout) == kFirstOutputStream);
  CHECK(output_stream(1, OutputStream::kStderr) == kFirstOutputStream + 3);
  CHECK(output_stream(kMaxRanks - 1, OutputStream::kStderr) < kFirstStoreStream);
}
