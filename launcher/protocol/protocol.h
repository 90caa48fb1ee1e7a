// The control messages between launcher and agent: structs, and their encoding as the payload of
// kControl frames. Output and store connections are separate streams. AgentLink of the launcher, and Agent, send and
// receive them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secrets/hmac.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/token_proof.h"

namespace hvd::launcher {

// From the agent: its first message.
struct AgentHello {
  std::string version;  // version of the agent
  std::string build;    // the name its file was started by, which carries its content hash
  uint32_t pid = 0;
  std::string hostname;
  std::string machine;  // host_identity() of the agent; two hosts with equal ones are one machine
  uint32_t uid = 0;
  uint32_t cpus = 0;  // number of CPUs that the agent may use
};

// From the launcher, before Prepare: a piece of the files that --stage copies to each host.
struct StagePart {
  StageKind kind = StageKind::kEnd;
  uint32_t mode = 0;
  std::string path;   // within the copy
  std::string bytes;  // contents of the file; or the target of the link; or the digest of all parts
};
// Digest of a part and all parts before it.
Digest next_digest(const Digest& before, const StagePart& part);
// From the launcher, as all messages down to Suspend: make the host ready for its ranks. Answered by Prepared.
struct Prepare {
  HostJob job;
  uint32_t output_credit = 0;  // granted at once to each output stream
  uint32_t store_credit = 0;   // granted at once to each store connection
};
// Start the ranks. Answered by Started.
struct Start {
  StartOrder order;
};
// To the agents of other hosts: test which of these addresses of rank 0's host they reach. Answered by
// ReachabilityTested.
struct TestReachability {
  MasterCandidates candidates;
};
// Send a signal to every rank's process group.
struct Signal {
  int32_t number = 0;
};
// Write bytes to a rank's standard input; empty bytes are end of file.
struct Input {
  int32_t rank = 0;
  std::string bytes;
};
// End all ranks: a signal, and SIGKILL after the grace. Answered by Finished.
struct End {
  double grace_seconds = 0;
  int32_t signal = 0;  // signal that ended the launcher; agent and ranks may have got it too. Or 0
};
// End one rank: the job's end signal, and SIGKILL after the grace. Other ranks of the host continue.
struct EndRank {
  int32_t rank = 0;
  double grace_seconds = 0;
};
// How an agent describes a rank: its first process; also the processes below that, and the Python stacks of all; or
// one line about the busiest of them.
enum class InspectDetail : uint8_t { kProcess = 0, kStacks = 1, kActivity = 2 };
// Describe the ranks' processes. Answered by Inspected.
struct Inspect {
  uint32_t number = 0;  // names the question in the answer
  uint8_t detail = 0;   // an InspectDetail
};
// Run a command beside a rank, in the rank's environment. Answered by Said and Ran.
struct Run {
  uint32_t number = 0;  // names the order in the answers
  int32_t rank = 0;
  // From `horovodrun exec`, in place of `number` and `rank`: "0,3-5"; empty: the first rank of each host.
  std::string ranks;
  std::vector<std::string> command;
};
// Number of output bytes of a command that its reader has consumed.
struct SaidTaken {
  uint32_t number = 0;  // number in the order (Run)
  uint32_t size = 0;
};
// End the command of a Run, because its client has left.
struct StopRun {
  uint32_t number = 0;  // number in the order (Run)
};
// Renews the lease, and ends a suspension.
struct Ping {
  uint64_t number = 0;
};
// Pause the lease until the next Ping. Answered by Suspended.
struct Suspend {};

// From the agent: how many bytes of the StageParts it has written, or why it cannot.
struct Staged {
  uint64_t taken = 0;
  Status status;
};
// From the agent, as all messages down to Failed. The answer to Prepare: an ok status or one sentence.
struct Prepared {
  Status status;
  MasterCandidates candidates;  // addresses of rank 0's host; empty from other hosts
  std::vector<std::pair<std::string, std::string>>
      versions;          // versions of Python and its packages, for a Python program
  uint32_t threads = 0;  // OMP_NUM_THREADS of each rank, where the agent sets it
};
// The answer to Start.
struct Started {
  Status status;
};
// A rank has ended.
struct Exited {
  RankExit exit;
};
// A rank, or a process below it, has called hvd.init() and is this rank of a world of this size.
struct Joined {
  int32_t rank = 0;  // rank in the job
  int32_t world_rank = 0;
  int32_t world_size = 1;
  // As in rendezvous::WorldReport.
  std::string start, ranks;
  uint8_t has_met = 0;
};
// The agent's last message: nothing of the job is left on the host.
struct Finished {
  std::string left_behind;  // a sentence about processes that could not be ended; or empty
  uint8_t is_independent =
      0;  // a Python program whose ranks gave no sign that they know of each other
};
// Number of input bytes that a rank has consumed.
struct InputTaken {
  int32_t rank = 0;
  uint32_t size = 0;
};
// An answer to Inspect: a paragraph for each rank.
struct Inspected {
  uint32_t number = 0;
  std::string text;
};
// A piece of the output of a Run's command. At most kSaidWindow bytes wait for a SaidTaken.
struct Said {
  uint32_t number = 0;
  int32_t rank = 0;
  uint8_t is_error = 0;  // the bytes are from standard error
  std::string bytes;
};
// The end of a Run's command, after all of its output.
struct Ran {
  uint32_t number = 0;
  int32_t rank = 0;
  int32_t code = 0;
  int32_t signal = 0;  // signal that ended the command, or 0
  std::string why;     // one line: why the command could not run; or empty
};
// The answer to Ping.
struct Pong {
  uint64_t number = 0;
};
struct Suspended {};
// The answer to TestReachability.
struct ReachabilityTested {
  Reached reached;
};
// The ranks of this host got SIGUSR1 or SIGUSR2 from a process that is not the launcher.
struct Signalled {
  int32_t number = 0;
};
// The agent leaves an elastic job, for this reason, and waits for End; after HostJob::leave_grace_seconds,
// Ending follows.
struct Leaving {
  std::string sentence;
};
// The agent ends everything, for this reason; what the ranks say until then, and Finished, follow.
struct Ending {
  std::string sentence;
};
// The agent gives up, for this reason; it ends everything and closes the link. From the launcher: it
// does not take this agent, which ends.
struct Failed {
  std::string sentence;
};

// Only on a link that the agent dialled, before its hello: the launcher's challenge, the
// agent's answer, the launcher's own proof. See token_proof.h. All releases use the same bytes for
// these three, Failed and the first field of AgentHello, so that they can refuse each other.
struct Challenge {
  Nonce nonce{};
};
struct Answer {
  Nonce nonce{};
  std::string name;
  Proof proof{};
  std::string version;  // version of the agent
};
struct Admission {
  Proof proof{};
};

// The session of a link, which outlives its connections: see resumable_stream.h. These four travel in
// frames without records, before the first record of a connection.
using SessionKey = Digest;
using SessionId = Digest;
// From the launcher, on the first connection: the session begins. Records follow, in both directions.
struct OpenSession {
  SessionKey key{};
  // How long the agent waits after its connection has ended for a new agent process that hands it
  // another one. 0: not at all. An agent that dials does not wait, but dials again.
  double wait_seconds = 0;
};
// From the launcher to a new agent process: hand your connection to the agent of this session.
struct Reattach {
  SessionId session{};
  Nonce nonce{};
};
// From the agent, after Reattach, or in place of Answer: it offers to continue. `received`: bytes of
// the launcher that it has.
struct Resume {
  SessionId session{};
  Nonce nonce{};
  uint64_t received = 0;
  Proof proof{};
};
// From the launcher: the link continues. Or it sends Failed.
struct Resumed {
  uint64_t received = 0;
  Proof proof{};
};

using Message =
    std::variant<AgentHello, Prepare, Start, Signal, End, Ping, Suspend, Prepared, Started, Exited,
                 Finished, Pong, Suspended, Failed, Challenge, Answer, Admission, TestReachability,
                 ReachabilityTested, Input, InputTaken, Inspect, Inspected, Joined, Run, Ran,
                 StagePart, Staged, Said, SaidTaken, StopRun, Ending, Signalled, OpenSession,
                 Reattach, Resume, Resumed, EndRank, Leaving>;

Bytes encode(const Message& message);
// Reads only the version of an AgentHello of another release.
Result<Message> decode(ByteView bytes);
// Refuses the version of an agent that is not of this launcher's release.
Status check_agent_version(std::string_view version);

// The streams of output: two for each rank, by its place in HostJob::ranks. Store connections
// begin at kFirstStoreStream.
constexpr uint32_t kFirstOutputStream = 1;
constexpr uint32_t kFirstStoreStream = 1u << 20;
constexpr size_t kMaxRanks = (kFirstStoreStream - kFirstOutputStream) / 2;

// Limit of unread input of a rank.
constexpr size_t kInputWindow = 64 << 10;
// Limit of unread output of a command beside a rank.
constexpr size_t kSaidWindow = 64 << 10;

uint32_t output_stream(size_t index, OutputStream stream);

}  // namespace hvd::launcher
