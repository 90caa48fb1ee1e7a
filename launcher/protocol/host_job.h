// The launcher's requests to one host's agent, and the agent's replies. Data only, shared by both ends of the link.
// HostJob::fields() lists the members that are sent.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace hvd::launcher {

// The key in Prepared::versions for the path of the Python that runs the program.
inline constexpr const char* kInterpreter = "interpreter";

// As the program of a command: the agent's own executable, which each host has.
inline constexpr const char* kAgentProgram = "horovod-agent";

// The keys for a host whose ranks use a copy of the launcher's package or of the environment of --stage-env. Each
// value states whether the copy was sent now, or by an earlier job.
inline constexpr const char* kPackageCopy = "copy";
inline constexpr const char* kEnvironmentCopy = "environment";
inline constexpr const char* kCopySent = "sent";
inline constexpr const char* kCopyKept = "kept";

// The key for a host that can serve PMIx.
inline constexpr const char* kPmix = "PMIx";

// The key for the facts of --preflight quick, a JSON object (launcher/agent/doctor/host_facts.h).
inline constexpr const char* kHostFacts = "facts";

// The keys for the host's numbers of GPUs and of usable cores.
inline constexpr const char* kGpus = "GPUs";
inline constexpr const char* kCores = "cores";
// The key for a text such as "1 of 8": the cores in the affinity mask, and in the cpuset. Present only if the mask
// allows fewer cores than there are ranks, and the cpuset allows more.
inline constexpr const char* kBinding = "bound cores";

// The time that a link survives without a connection in a job without a heartbeat timeout (lease_seconds is 0).
// The agent and the launcher wait equally long: if the agent gave up first, it would end ranks while its launcher still
// reconnects.
inline constexpr double kSurviveSeconds = 60;

// Returns the seconds without a byte from the other end after which a link opens another connection: after a network
// outage, TCP may stay silent for as long as the outage lasted. The link uses the current connection until then.
// `limit_seconds`: the silence after which this end gives up.
inline double replace_link_after(double limit_seconds) {
  return std::clamp(limit_seconds / 3, 2.0, 15.0);
}
// After this many seconds of silence, one end may have closed the connection (ssh's ServerAliveInterval) without the
// other end noticing. The other end then does not yet expect another connection.
inline constexpr double kUnnoticedSeconds = 5;

struct RankSpec {
  int rank = 0;
  std::vector<std::pair<std::string, std::string>>
      environment;         // variables that this rank alone gets
  bool has_input = false;  // its standard input comes from the launcher
};

// The launcher's own package horovod with its library, as the launcher describes it to a host.
struct PackageOffer {
  std::string name;     // package_name() of its list; empty: no package
  std::string version;  // version of the package
  std::string machine;  // as uname -m prints it
  // The oldest versions of glibc and of libstdc++'s symbols with which the package runs; empty: any version.
  std::string glibc, glibcxx;
  uint64_t size = 0;  // bytes of its files
  // The file in the package that runs instead of the job's program on hosts without that program; may be empty.
  std::string program{};
};

// The hosts that get the launcher's package: none (--no-ship), hosts whose Python lacks it, or all (--ship).
enum class Shipping : uint8_t { kNever = 0, kWhereMissing = 1, kEverywhere = 2 };

struct HostJob {
  uint64_t job = 0;
  uint32_t generation = 0;
  uint32_t host = 0;      // index of the host in the plan
  uint32_t hosts = 1;     // number of hosts in the plan
  std::string host_name;  // the name in the plan
  std::vector<std::string> command;
  // The Python of the environment that contains horovodrun, for a script that is started without an active environment.
  std::string python;
  // The folder of the launcher's own package horovod, for an interpreter without it; may be empty.
  std::string package_folder;
  PackageOffer package;
  Shipping shipping = Shipping::kWhereMissing;
  std::string agent_dir;         // HOROVOD_AGENT_DIR, or empty
  bool has_environment = false;  // --stage-env: the agent requests an environment's files
  std::string environment_dir;   // --stage-dir, or empty
  std::string working_directory;
  // Variables for all ranks of the host, which override the agent's own environment: a host keeps its
  // own HOME, PATH and so on unless this list names them.
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<RankSpec> ranks;
  std::string remote_init;   // a command whose environment the ranks get; may be empty
  bool is_compared = false;  // other hosts must have equal versions
  double lease_seconds = 45;
  // The launcher considers the host lost after this time without a reply; 0: the heartbeat timeout. Not sent.
  double host_timeout_seconds = 0;
  // Set if another host may replace this host. After this many seconds of the launcher's silence, the agent stops its
  // ranks (SIGSTOP). After the heartbeat timeout, it kills them without grace. 0: this host is never replaced.
  double hold_after_seconds = 0;
  bool is_staged = false;         // the host has a copy of the code (--stage)
  std::string staged_path;        // path in the copy that PYTHONPATH gets
  bool insecure_compat = false;   // the ranks may be workers of the original Horovod
  double kill_grace_seconds = 5;  // time between the end signal and SIGKILL
  // The seconds that the agent of an elastic job waits after SIGTERM for its ranks to leave; 0: no wait.
  double leave_grace_seconds = 0;
  int end_signal = 15;  // SIGTERM or SIGINT: sent to the ranks when the job ends
  static auto fields(auto& job) {
    return std::tie(
        job.job, job.generation, job.host, job.hosts, job.host_name, job.command, job.python,
        job.package_folder, job.package, job.shipping, job.agent_dir, job.has_environment,
        job.environment_dir, job.working_directory, job.environment, job.ranks, job.remote_init,
        job.is_compared, job.is_staged, job.staged_path, job.lease_seconds, job.hold_after_seconds,
        job.kill_grace_seconds, job.leave_grace_seconds, job.insecure_compat, job.end_signal);
  }
};

// Returns the shortest silence, in seconds, after which one end of the host's link gives up; 0: neither end gives up.
// The agent does not know host_timeout_seconds.
inline double shortest_silence(const HostJob& job) {
  double shortest = 0;
  for (const double limit : {job.lease_seconds, job.host_timeout_seconds, job.hold_after_seconds}) {
    if (limit > 0 && (shortest == 0 || limit < shortest)) shortest = limit;
  }
  return shortest;
}

// Addresses and port that may become MASTER_ADDR and MASTER_PORT, from the agent of rank 0's host; or the addresses
// where an agent serves the files of --stage-env.
struct MasterCandidates {
  uint16_t port = 0;                  // 0: no candidates
  std::array<std::byte, 32> nonce{};  // identifies the program that listens there
  // Each address with its interface; the likeliest address first, loopback addresses last.
  std::vector<std::pair<std::string, std::string>> addresses;
};

// The candidate addresses that a host can reach, each with the interface that the host uses.
using Reached = std::vector<std::pair<std::string, std::string>>;

// Data for ranks that is only known when they start: the master endpoint.
struct StartOrder {
  std::vector<std::pair<std::string, std::string>> environment;  // overrides all other variables
  // The interface with which other hosts reach this host, for programs whose interface the user has not chosen.
  std::string interface;
};

enum class OutputStream : uint8_t { kStdout = 1, kStderr = 2 };

// The kind of a piece of staged code: the beginning of a file, its continuation, ...
enum class StageKind : uint8_t { kDirectory = 1, kFile = 2, kMore = 3, kLink = 4, kEnd = 5 };

// The variables by which env:// of torch.distributed finds the ranks.
inline constexpr std::array<std::string_view, 5> kWorldVariables = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"};

// A difference between the environment that the launcher gave to a rank and that in which the rank's program began.
// Without a name: the agent has not read the variables of the rank's program.
struct VariableChange {
  std::string name = {}, given = {};
  std::string found = {};  // empty: the program began without the variable
};

struct RankExit {
  int rank = 0;
  int code = 0;              // exit status, if signal is 0
  int signal = 0;            // signal that ended the rank, or 0
  bool by_agent = false;     // the rank ended while the agent was ending it
  bool after_grace = false;  // SIGKILL ended the rank, which still ran after the grace period
  // The kernel's out-of-memory killer has ended a process of this host's cgroup since the start, or
  // since the last exit with this flag.
  bool out_of_memory = false;
  // The other user whose process listens at MASTER_PORT, after rank 0 has failed.
  std::optional<uint32_t> master_port_user = {};
  // The limit RLIMIT_CPU in seconds, if the kernel ended the rank because of it; else 0.
  uint64_t cpu_seconds = 0;
  // The changes of kWorldVariables that the agent has seen in the rank's program.
  std::vector<VariableChange> changes = {};
};

}  // namespace hvd::launcher
