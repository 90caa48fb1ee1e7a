// The launcher's requests to one host's agent, and the agent's replies. Data only, shared by both
// ends of the link. Members are sent in their order; HostJob lists those that are sent.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace hvd::launcher {

// The key, among the versions that an agent reports, of the path of the Python that runs the program.
inline constexpr const char* kInterpreter = "interpreter";

// The keys of a host whose ranks use a copy of the launcher's package, or the environment of --stage-env, and their
// values: sent now, or by an earlier job.
inline constexpr const char* kPackageCopy = "copy";
inline constexpr const char* kEnvironmentCopy = "environment";
inline constexpr const char* kCopySent = "sent";
inline constexpr const char* kCopyKept = "kept";

// The key of a host that can serve PMIx.
inline constexpr const char* kPmix = "PMIx";

// The keys of the numbers of GPUs, and of usable cores, of the host.
inline constexpr const char* kGpus = "GPUs";
inline constexpr const char* kCores = "cores";
// "1 of 8", where the affinity mask leaves fewer cores than ranks, and the cpuset has more.
inline constexpr const char* kBinding = "bound cores";

// How long a link of a job without a lease (lease_seconds is 0) survives without a connection. Both ends wait as
// long: an agent that gave up first would end ranks whose launcher still redials.
inline constexpr double kSurviveSeconds = 60;

// After so long without a byte from the other end, a link gets another connection, and uses the present one until
// then: after a cut of the network, TCP may send nothing for as long as the cut has lasted.
// `limit_seconds`: the silence after which this end gives up the other one.
inline double replace_link_after(double limit_seconds) {
  return std::clamp(limit_seconds / 3, 2.0, 15.0);
}
// A link that breaks after so long a silence, as by ssh's ServerAliveInterval, may be whole at the other end, which
// then does not look for another connection.
inline constexpr double kUnnoticedSeconds = 5;

struct RankSpec {
  int rank = 0;
  std::vector<std::pair<std::string, std::string>>
      environment;         // variables that this rank alone gets
  bool has_input = false;  // its standard input comes from the launcher
};

// The launcher's own package horovod with its library, as it can be sent to a host.
struct PackageOffer {
  std::string name;     // package_name() of its list; empty: there is none
  std::string version;  // of the package
  std::string machine;  // as uname -m prints it
  // The oldest versions of glibc and of the symbols of libstdc++ with which it runs; empty: any.
  std::string glibc, glibcxx;
  uint64_t size = 0;  // bytes of its files
  // The file in it that runs in place of the job's program where the host has none; empty: none.
  std::string program{};
};

// Which hosts get the launcher's package: none (--no-ship), those whose Python has none, or all (--ship).
enum class Shipping : uint8_t { kNever = 0, kWhereMissing = 1, kEverywhere = 2 };

struct HostJob {
  uint64_t job = 0;
  uint32_t generation = 0;
  uint32_t host = 0;      // index of the host in the plan
  uint32_t hosts = 1;     // number of hosts in the plan
  std::string host_name;  // as in the plan
  std::vector<std::string> command;
  // The Python of the environment that horovodrun is installed in, for a script without an active environment.
  std::string python;
  // The folder of the launcher's own package horovod, for an interpreter without one; empty: none.
  std::string package_folder;
  PackageOffer package;
  Shipping shipping = Shipping::kWhereMissing;
  std::string agent_dir;         // HOROVOD_AGENT_DIR, or empty
  bool has_environment = false;  // --stage-env: the agent asks for the files of an environment
  std::string environment_dir;   // --stage-dir, or empty
  std::string working_directory;
  // Variables of all ranks of the host. They are laid over the environment that the agent was
  // started with: a host keeps its own HOME, PATH and the like unless they are named here.
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<RankSpec> ranks;
  std::string remote_init;   // a command whose environment the ranks get; empty: none
  bool is_compared = false;  // other hosts must have the same versions
  double lease_seconds = 45;
  // The launcher takes the host for lost after this time without an answer; 0: the lease. Not sent.
  double host_timeout_seconds = 0;
  // Others may replace this host, so the agent stops its ranks after this time without the launcher, and kills them
  // without grace after the lease; 0: no other host ever replaces this one.
  double hold_after_seconds = 0;
  bool is_staged = false;         // a relative working directory is within the staged copy
  std::string staged_path;        // within it, for PYTHONPATH
  bool insecure_compat = false;   // the ranks may be Horovod's own workers
  double kill_grace_seconds = 5;  // between the end signal and SIGKILL
  // How long the agent of an elastic job stays after SIGTERM while its ranks leave; 0: not at all.
  double leave_grace_seconds = 0;
  int end_signal = 15;  // SIGTERM or SIGINT: tells the ranks of a job that ends
  static auto fields(auto& job) {
    return std::tie(
        job.job, job.generation, job.host, job.hosts, job.host_name, job.command, job.python,
        job.package_folder, job.package, job.shipping, job.agent_dir, job.has_environment,
        job.environment_dir, job.working_directory, job.environment, job.ranks, job.remote_init,
        job.is_compared, job.is_staged, job.staged_path, job.lease_seconds, job.hold_after_seconds,
        job.kill_grace_seconds, job.leave_grace_seconds, job.insecure_compat, job.end_signal);
  }
};

// The silence after which one end of the host's link gives up the other one, as far as this end knows; 0: never.
inline double shortest_silence(const HostJob& job) {
  double shortest = 0;
  for (const double limit : {job.lease_seconds, job.host_timeout_seconds, job.hold_after_seconds}) {
    if (limit > 0 && (shortest == 0 || limit < shortest)) shortest = limit;
  }
  return shortest;
}

// The candidates for MASTER_ADDR and MASTER_PORT, from the agent of rank 0's host; or the addresses at which an agent
// passes the files of --stage-env on.
struct MasterCandidates {
  uint16_t port = 0;                  // 0: there are no candidates
  std::array<std::byte, 32> nonce{};  // identifies the program that answers there
  // With the interface of each, the likeliest first, the loopback's last.
  std::vector<std::pair<std::string, std::string>> addresses;
};

// The candidate addresses that a host reaches, each with the host's own interface to it.
using Reached = std::vector<std::pair<std::string, std::string>>;

// Data that ranks get only when they start: the master endpoint.
struct StartOrder {
  std::vector<std::pair<std::string, std::string>> environment;  // overrides all other variables
  // The network interface by which other hosts reach this host, for programs without a setting for it.
  std::string interface;
};

enum class OutputStream : uint8_t { kStdout = 1, kStderr = 2 };

// Kind of a piece of staged code: the beginning of a file, its continuation, ...
enum class StageKind : uint8_t { kDirectory = 1, kFile = 2, kMore = 3, kLink = 4, kEnd = 5 };

struct RankExit {
  int rank = 0;
  int code = 0;              // exit status, when signal is 0
  int signal = 0;            // signal that ended the rank, or 0
  bool by_agent = false;     // the agent ended it because the job was ending
  bool after_grace = false;  // by SIGKILL, since it had not ended by then
  // The kernel's out-of-memory killer has ended a process of this host's cgroup since the start, or
  // since the last exit that reported it.
  bool out_of_memory = false;
  // Rank 0 has failed, and the process of this other user listens at MASTER_PORT.
  std::optional<uint32_t> master_port_user = {};
  // The seconds of RLIMIT_CPU, if the kernel has ended the rank because it had used them up; else 0.
  uint64_t cpu_seconds = 0;
};

}  // namespace hvd::launcher
