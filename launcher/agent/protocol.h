// The control messages between launcher and agent: structs and their bytes. They travel as the
// payload of kControl frames; output and store connections are streams of their own. Knows
// nothing of processes or sockets.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "launcher/agent/host_job.h"
#include "launcher/agent/token_proof.h"

namespace hvd::launcher {

// From the agent, first of all and unasked.
struct Greeting {
  std::string version;   // of the release
  std::string build;     // the name its file was started by, which carries its content hash
  uint32_t pid = 0;
  std::string hostname;
  std::string boot_id;   // of the running kernel: two names with one boot id may be one machine
  uint32_t uid = 0;
  uint32_t cpus = 0;     // that the agent may run on
};

// From the launcher.
struct Prepare {
  HostJob job;
  uint32_t output_credit = 0;  // granted at once to each output stream
  uint32_t store_credit = 0;   // granted at once to each store connection
};
struct Start {};
// To every rank's process group.
struct Signal {
  int32_t number = 0;
};
struct End {
  double grace_seconds = 0;
};
// Renews the lease, and ends a suspension.
struct Ping {
  uint64_t number = 0;
};
// The lease is paused until the next Ping. Answered by Suspended.
struct Suspend {};

// From the agent. An answer carries an ok status or one sentence.
struct Prepared {
  Status status;
};
struct Started {
  Status status;
};
struct Exited {
  RankExit exit;
};
// Nothing of the job is left on the host, and nothing more is sent.
struct Finished {
  std::string left_behind;  // what could not be ended, as a sentence; empty when nothing
};
struct Pong {
  uint64_t number = 0;
};
struct Suspended {};
// The agent gives up, for this reason; it ends everything and closes the link.
struct Failed {
  std::string sentence;
};

// Only on a link that the agent dialled, before its greeting: the launcher's challenge, the
// agent's answer, the launcher's own proof. See token_proof.h.
struct Challenge {
  Nonce nonce{};
};
struct Answer {
  Nonce nonce{};
  std::string name;
  Proof proof{};
};
struct Admission {
  Proof proof{};
};

using Message = std::variant<Greeting, Prepare, Start, Signal, End, Ping, Suspend, Prepared, Started,
                             Exited, Finished, Pong, Suspended, Failed, Challenge, Answer,
                             Admission>;

Bytes encode(const Message& message);
Result<Message> decode(ByteView bytes);

// The streams of output: two for each rank, by its place in HostJob::ranks. Store connections
// begin at kFirstStoreStream.
constexpr uint32_t kFirstOutputStream = 1;
constexpr uint32_t kFirstStoreStream = 1u << 20;
constexpr size_t kMaxRanks = (kFirstStoreStream - kFirstOutputStream) / 2;

uint32_t output_stream(size_t index, OutputStream stream);

}  // namespace hvd::launcher
