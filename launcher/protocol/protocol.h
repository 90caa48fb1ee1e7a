// The control messages between launcher and agent: structs, and their encoding as the payload of kControl frames.
// Output and store connections are separate streams. AgentLink in the launcher and class Agent send and receive the
// messages. To add a message, add a struct here, a member of Message, and a function of the receiver (Agent::execute,
// AgentLink::receive). Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secrets/hmac.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/host_sample.h"
#include "launcher/protocol/token_proof.h"

namespace hvd::launcher {

// The end of the link that sends a message. kOpening: sent only while a connection is opened.
enum class Sender : uint8_t { kLauncher, kAgent, kOpening };

// A message's type. Each message below declares its type and its members; the encoding keeps the members' order.
struct MessageType {
  uint16_t kind;     // on the wire: numbers are never reused
  const char* name;  // for an error
  Sender sender;
};

// The agent's first message.
struct AgentHello {
  static constexpr MessageType kType{1, "a hello", Sender::kAgent};
  std::string version;  // version of the agent
  std::string build;    // the agent's file name, which contains its content hash
  uint32_t pid = 0;
  std::string hostname;
  std::string machine;  // host_identity() of the agent; equal values mean the same machine
  uint32_t uid = 0;
  uint32_t cpus = 0;  // number of CPUs that the agent may use
};

// From the launcher before Prepare: a piece of the files of --stage. After EnvironmentSource or
// EnvironmentFilesWanted: a piece of the environment, also from host to host (staged_parts.h). After PackageWanted: a
// piece of the package, as the files "list" (package_list.h) and "packed", all files in one, possibly packed by gzip.
struct StagePart {
  static constexpr MessageType kType{27, "a part of the code", Sender::kLauncher};
  StageKind kind = StageKind::kEnd;
  uint32_t mode = 0;
  std::string path;   // within the copy
  std::string bytes;  // contents of the file, target of the link, or digest of all parts
};
// Returns the digest of a part and all previous parts.
Digest next_digest(const Digest& before, const StagePart& part);
// Prepares the host for its ranks. Answered by Prepared.
struct Prepare {
  static constexpr MessageType kType{2, "an order to prepare", Sender::kLauncher};
  HostJob job;
  uint32_t output_credit = 0;  // granted at once to each output stream
  uint32_t store_credit = 0;   // granted at once to each store connection
};
// Answers EnvironmentWanted: the files of the environment. Answered by EnvironmentFilesWanted, or by Prepared if the
// host has the environment already.
struct EnvironmentOffer {
  static constexpr MessageType kType{43, "an environment", Sender::kLauncher};
  std::string list;    // package_list.h
  uint64_t space = 0;  // bytes that files and environment take on the host
  std::string glibc;   // the oldest glibc with which the environment runs
  Digest key{};        // key of the connections by which hosts pass the files on (staged_parts.h)
};
// The first answer to EnvironmentFilesWanted: a host that passes the files on, because it has them or is receiving
// them. Without a port: there is no such host, and StageParts follow.
struct EnvironmentSource {
  static constexpr MessageType kType{45, "the source of an environment", Sender::kLauncher};
  std::string host;
  MasterCandidates server;
};
// Starts the ranks. Answered by Started.
struct Start {
  static constexpr MessageType kType{4, "an order to start", Sender::kLauncher};
  StartOrder order;
};
// To the agents of other hosts: tests which of these addresses of rank 0's host they can reach.
// Answered by ReachabilityTested.
struct TestReachability {
  static constexpr MessageType kType{18, "an order to test reachability", Sender::kLauncher};
  MasterCandidates candidates;
};
// Sends a signal to every rank's process group. For a rank that it ends, RankExit::by_agent is false.
struct Signal {
  static constexpr MessageType kType{8, "a signal", Sender::kLauncher};
  int32_t number = 0;
};
// Writes bytes to a rank's standard input; empty bytes mean end of file.
struct Input {
  static constexpr MessageType kType{20, "a rank's input", Sender::kLauncher};
  int32_t rank = 0;
  std::string bytes;
};
// Ends all ranks and their descendants: by the job's end signal, and by SIGKILL after the grace. A
// second End may shorten the grace. Answered by Finished.
struct End {
  static constexpr MessageType kType{9, "an order to end", Sender::kLauncher};
  double grace_seconds = 0;
  // The signal that ended the launcher, SIGTERM or SIGHUP, or 0. Ranks that lack the launcher's SIGHUP get it before
  // the end signal. Ranks that have already got SIGTERM get no end signal. The grace is then
  // HostJob::kill_grace_seconds.
  int32_t signal = 0;
};
// Ends one rank, as End does for all. Exited follows, and the other ranks of the host continue.
struct EndRank {
  static constexpr MessageType kType{38, "an order to end a rank", Sender::kLauncher};
  int32_t rank = 0;
  double grace_seconds = 0;
};
// The level of detail of a rank's description. kProcess: its first process. kStacks: also its descendants, and their
// Python stacks. kActivity: one line about the busiest process. kNativeStacks: like kStacks with library frames, for
// which py-spy briefly stops the process. kPlaces: its place, as in HostSample::places.
enum class InspectDetail : uint8_t {
  kProcess = 0,
  kStacks = 1,
  kActivity = 2,
  kNativeStacks = 3,
  kPlaces = 4
};
// Requests a description of the ranks' processes. Answered by Inspected; with kPlaces by Sampled.
struct Inspect {
  static constexpr MessageType kType{22, "a question where ranks are", Sender::kLauncher};
  uint32_t number = 0;  // identifies the request in the answer
  InspectDetail detail = InspectDetail::kProcess;
};
// Requests these groups of values of the ranks. Answered by Sampled.
struct TakeSample {
  static constexpr MessageType kType{72, "a question about values of ranks", Sender::kLauncher};
  uint32_t number = 0;  // identifies the request in the answer
  SampleGroups groups;
};
// Requests the place of a late rank in its code, while other ranks wait for it. Answered by Sampled, without a place if
// the agent cannot read the place in time.
struct InspectLate {
  static constexpr MessageType kType{70, "a question where a late rank is", Sender::kLauncher};
  uint32_t number = 0;  // identifies the request in the answer
  int32_t rank = 0;
  uint32_t late_microseconds = 0;  // time by which the rank is late in each step
};
// The wait per step of the rank that waits longest in the job: the median of the last steps. For StepLog.
struct LongestWait {
  static constexpr MessageType kType{71, "the longest wait of ranks", Sender::kLauncher};
  uint32_t microseconds = 0;  // 0: unknown
};
// Describes the launcher's py-spy. Sent before the first Inspect or InspectLate that may need py-spy.
struct StackToolOffer {
  static constexpr MessageType kType{61, "an offer of py-spy", Sender::kLauncher};
  PackageOffer
      offer;  // package with only the file kPySpy; without a name: the launcher has no py-spy
  std::string path;  // on the launcher's machine
};
inline constexpr const char* kPySpy = "py-spy";
// Runs a command next to a rank, in the rank's environment. Answered by OutputChunk and ExecResult.
struct Run {
  static constexpr MessageType kType{25, "a command to run", Sender::kLauncher};
  uint32_t number = 0;  // identifies the order in the answers
  int32_t rank = 0;
  // From `horovodrun exec`, instead of `number` and `rank`: "0,3-5"; empty: the first rank of each host.
  std::string ranks;
  std::vector<std::string> command;
};
// Reports that the reader has consumed `size` more bytes of a command's output.
struct OutputCredit {
  static constexpr MessageType kType{30, "an acknowledgement of output of a command",
                                     Sender::kLauncher};
  uint32_t number = 0;  // number of the order (Run)
  uint32_t size = 0;
};
// Ends the command of a Run, because the client that requested it has left.
struct StopRun {
  static constexpr MessageType kType{31, "an order to stop a command", Sender::kLauncher};
  uint32_t number = 0;  // number in the order (Run)
};
// Renews the heartbeat, and ends a suspension.
struct Ping {
  static constexpr MessageType kType{10, "a ping", Sender::kLauncher};
  uint64_t number = 0;
  uint8_t continues_ranks =
      0;  // the launcher still uses the host: the agent continues the stopped ranks
};
// Pauses the heartbeat timeout until the next Ping. Answered by Suspended.
struct Suspend {
  static constexpr MessageType kType{12, "a suspension", Sender::kLauncher};
};

// From the agent: the number of bytes of StageParts, including paths, that it has taken, or why writing failed.
struct Staged {
  static constexpr MessageType kType{28, "an answer to a part of the code", Sender::kAgent};
  uint64_t taken = 0;
  Status status;
};
// Answers Prepare: an ok status, or one sentence about why the host is not ready.
struct Prepared {
  static constexpr MessageType kType{3, "an answer about preparing", Sender::kAgent};
  Status status;
  MasterCandidates candidates;  // addresses of rank 0's host; other hosts send none
  std::vector<std::pair<std::string, std::string>>
      versions;          // versions of Python and its packages, and facts by the keys of host_job.h
  uint32_t threads = 0;  // OMP_NUM_THREADS of each rank, if the agent sets it
};
// Sent during Prepare: the host's ranks need the launcher's package, HostJob::package, and the host has no copy.
struct PackageWanted {
  static constexpr MessageType kType{41, "a request for the package", Sender::kAgent};
};
// Sent during Prepare, with --stage-env: describes the host's Python, for which the launcher chooses the files.
struct EnvironmentWanted {
  static constexpr MessageType kType{42, "a request for an environment", Sender::kAgent};
  std::string python, machine, glibc;  // "3.11.2", "x86_64", "2.36"
};
// Answered by EnvironmentSource. Sent once more if the host that EnvironmentSource names stops sending: the launcher
// then answers with StageParts.
struct EnvironmentFilesWanted {
  static constexpr MessageType kType{44, "a request for the files of an environment",
                                     Sender::kAgent};
  MasterCandidates server{};  // where this host passes the files on; without a port: nowhere
  uint64_t first = 0;         // the index of the first file that the host lacks
  std::string why{};          // reason why the message is sent once more
};
// Sent after StackToolOffer: the agent lacks the launcher's py-spy. StageParts follow, as for PackageWanted.
struct StackToolWanted {
  static constexpr MessageType kType{60, "a request for py-spy", Sender::kAgent};
};
// Answers Start.
struct Started {
  static constexpr MessageType kType{5, "an answer about starting", Sender::kAgent};
  Status status;
};
// A rank has ended. Output that the rank wrote before may still follow.
struct Exited {
  static constexpr MessageType kType{6, "a rank's end", Sender::kAgent};
  RankExit exit;
};
// A rank, or one of its descendants, has called hvd.init() and is this rank of a world of this size.
struct Joined {
  static constexpr MessageType kType{24, "a rank's world", Sender::kAgent};
  int32_t rank = 0;  // rank in the job
  int32_t world_rank = 0;
  int32_t world_size = 1;
  // As in rendezvous::WorldReport.
  std::string start, ranks;
  uint8_t has_met = 0;
};
// Libraries whose processes usually work together. In Finished::is_independent, their numbers begin with 2.
inline constexpr std::array<std::string_view, 3> kParallelLibraries = {"PyTorch", "JAX", "MPI"};
// The agent's last message: all ranks have ended, all output has been sent, and nothing of the job remains on the host
// except `left_behind`.
struct Finished {
  static constexpr MessageType kType{7, "the job's end", Sender::kAgent};
  // A sentence about processes that could not be ended and files that were deleted with a staged copy; or empty.
  std::string left_behind;
  // Whether the ranks seem to work independently of each other. 0: no, or unknown. 1: yes, the Python program's sources
  // contain no word about ranks. From 2: yes, although the program has loaded this kParallelLibraries entry.
  uint8_t is_independent = 0;
};
// Number of input bytes that a rank has consumed.
struct InputTaken {
  static constexpr MessageType kType{21, "an answer to input", Sender::kAgent};
  int32_t rank = 0;
  uint32_t size = 0;
};
// Answers Inspect: a paragraph for each rank.
struct Inspected {
  static constexpr MessageType kType{23, "where ranks are", Sender::kAgent};
  uint32_t number = 0;
  std::string text;
};
// Answers TakeSample, InspectLate and the request for places.
struct Sampled {
  static constexpr MessageType kType{73, "values of ranks", Sender::kAgent};
  uint32_t number = 0;
  HostSample sample;
};
// A piece of the output of a Run's command. Without an OutputCredit, at most kChunkWindow bytes are sent.
struct OutputChunk {
  static constexpr MessageType kType{29, "output of a command", Sender::kAgent};
  uint32_t number = 0;
  int32_t rank = 0;
  uint8_t is_error = 0;  // the bytes are from standard error
  std::string bytes;
};
// The end of a Run's command, after all of its output.
struct ExecResult {
  static constexpr MessageType kType{26, "a command's end", Sender::kAgent};
  uint32_t number = 0;
  int32_t rank = 0;
  int32_t code = 0;
  int32_t signal = 0;  // signal that ended the command, or 0
  std::string why;     // one line: why the command could not run; or empty
};
// Answers Ping. Before a Failed after the heartbeat timeout, the agent sends one without a ping.
struct Pong {
  static constexpr MessageType kType{11, "a pong", Sender::kAgent};
  uint64_t number = 0;
  // Seconds of the launcher's silence, if the agent has stopped its ranks, or ends them next; 0: the ranks run.
  double silent_seconds = 0;
};
struct Suspended {
  static constexpr MessageType kType{13, "an answer to a suspension", Sender::kAgent};
};
// Answers TestReachability.
struct ReachabilityTested {
  static constexpr MessageType kType{19, "an answer about reachability", Sender::kAgent};
  Reached reached;
};
// The ranks of this host got SIGUSR1 or SIGUSR2 from a process that is not the launcher.
struct Signalled {
  static constexpr MessageType kType{33, "a signal that ranks got", Sender::kAgent};
  int32_t number = 0;
};
// A rank of this host has connected to PMIx, or entered a fence with the other ranks; or PMIx failed on this host.
struct PmixReport {
  static constexpr MessageType kType{40, "a report about PMIx", Sender::kAgent};
  int32_t rank = -1;
  std::string start;  // MPI's start: a rank may run several MPI programs in sequence
  uint8_t has_met = 0;
  std::string failure;  // the sentence; the rest is empty
};
// The agent leaves an elastic job, for this reason, and waits for End. If no End comes within
// HostJob::leave_grace_seconds, the agent sends Ending.
struct Leaving {
  static constexpr MessageType kType{39, "an agent's wish to leave", Sender::kAgent};
  std::string sentence;
};
// The agent ends all ranks, for this reason. The ranks' remaining output and Finished follow.
struct Ending {
  static constexpr MessageType kType{32, "an agent's end", Sender::kAgent};
  std::string sentence;
  uint8_t is_by_scheduler = 0;  // the scheduler ends its job on this host
};
// From the agent: it fails, for this reason, ends everything and closes the link. From the launcher:
// it refuses this agent, which then ends.
struct Failed {
  static constexpr MessageType kType{14, "a failure", Sender::kAgent};
  std::string sentence;
};

// The launcher's challenge, on a link that the agent dialled, before AgentHello (token_proof.h). All releases use the
// same bytes for Challenge, Answer, Admission, Failed and the first field of AgentHello, so that an end can refuse the
// other release.
struct Challenge {
  static constexpr MessageType kType{15, "a challenge", Sender::kOpening};
  Nonce nonce{};
};
// The agent's answer to Challenge, with the proof that the agent has the token.
struct Answer {
  static constexpr MessageType kType{16, "an answer to a challenge", Sender::kOpening};
  Nonce nonce{};
  std::string name;
  Proof proof{};
  std::string version;  // version of the agent
};
// The launcher's answer to Answer, with the proof that the launcher has the token.
struct Admission {
  static constexpr MessageType kType{17, "an admission", Sender::kOpening};
  Proof proof{};
};

// The session of a link, which outlives the link's connections: see resumable_stream.h. OpenSession, Reattach, Resume
// and Resumed are sent in frames without records, before the first record of a connection.
using SessionKey = Digest;
using SessionId = Digest;
// From the launcher, on the first connection: the session begins. Records follow, in both directions.
struct OpenSession {
  static constexpr MessageType kType{34, "a session", Sender::kOpening};
  SessionKey key{};
  // After the connection has ended, the agent waits this long for a new agent process that passes it another
  // connection; 0: no wait. An agent that dials the launcher does not wait, but dials again.
  double wait_seconds = 0;
};
// From the launcher to a new agent process: pass this connection to the agent of this session.
struct Reattach {
  static constexpr MessageType kType{35, "an order to hand over a connection", Sender::kOpening};
  SessionId session{};
  Nonce nonce{};
};
// From the agent, after Reattach, or instead of Answer: the agent offers to continue. `received`: the number
// of the launcher's bytes that the agent has received.
struct Resume {
  static constexpr MessageType kType{36, "an offer to resume", Sender::kOpening};
  SessionId session{};
  Nonce nonce{};
  uint64_t received = 0;
  Proof proof{};
};
// From the launcher: the link continues. To refuse the offer, the launcher sends Failed instead.
struct Resumed {
  static constexpr MessageType kType{37, "an answer to an offer to resume", Sender::kOpening};
  uint64_t received = 0;
  Proof proof{};
};

using Message =
    std::variant<AgentHello, Prepare, Start, Signal, End, Ping, Suspend, Prepared, Started, Exited,
                 Finished, Pong, Suspended, Failed, Challenge, Answer, Admission, TestReachability,
                 ReachabilityTested, Input, InputTaken, Inspect, Inspected, Joined, Run, ExecResult,
                 StagePart, Staged, OutputChunk, OutputCredit, StopRun, Ending, Signalled,
                 OpenSession, Reattach, Resume, Resumed, EndRank, Leaving, PmixReport,
                 PackageWanted, EnvironmentWanted, EnvironmentOffer, EnvironmentFilesWanted,
                 StackToolOffer, StackToolWanted, EnvironmentSource, InspectLate, LongestWait,
                 TakeSample, Sampled>;

// The messages about ranks, which the launcher's end of the link passes on in the order of their arrival.
using AgentReport = std::variant<Exited, Joined, Inspected, Sampled, InputTaken, OutputChunk,
                                 ExecResult, PmixReport, Signalled, Leaving, Ending, Finished>;

Bytes encode(const Message& message);
// Decodes a message; of an AgentHello of another release, decodes only the version.
Result<Message> decode(ByteView bytes);
// Returns an error if the agent's version is that of another release.
Status check_agent_version(std::string_view version);

// The output streams: two for each rank, by its index in HostJob::ranks. Store connections begin at
// kFirstStoreStream.
constexpr uint32_t kFirstOutputStream = 1;
constexpr uint32_t kFirstStoreStream = 1u << 20;
constexpr size_t kMaxRanks = (kFirstStoreStream - kFirstOutputStream) / 2;

// Maximum number of bytes of a rank's unread input.
constexpr size_t kInputWindow = 64 << 10;
// Maximum number of bytes of unread output of a command that runs next to a rank.
constexpr size_t kChunkWindow = 64 << 10;

uint32_t output_stream(size_t index, OutputStream stream);

}  // namespace hvd::launcher
