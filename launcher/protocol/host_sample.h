// Values of ranks, which an agent reads when the launcher requests them (TakeSample). HostSample has a list for each
// group of values. The list is empty if the group was not requested. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/bytes.h"
#include "base/metrics/metrics.h"
#include "launcher/protocol/host_job.h"

namespace hvd {

void put(ByteWriter& to, const Metrics& metrics);
void get(ByteReader& from, Metrics& metrics);

}  // namespace hvd

namespace hvd::launcher {

// Bits of TakeSample::groups.
enum class SampleGroup : uint8_t {
  kMetrics = 1 << 0,  // HostSample::metrics
  kGpus = 1 << 1,  // together with kMetrics: its GPU fields, which may take half a second to read
  kPressure = 1 << 2,  // together with kMetrics: its fields of disturbances
  kSigns = 1 << 3,     // HostSample::signs; the following bits name their lists in the same way
  kSteps = 1 << 4,
  kAnnounced = 1 << 5
};
struct SampleGroups {
  uint8_t bits = 0;
  constexpr SampleGroups() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): one group is a set of groups
  constexpr SampleGroups(SampleGroup group) : bits(static_cast<uint8_t>(group)) {}
  constexpr bool has(SampleGroup group) const { return (bits & static_cast<uint8_t>(group)) != 0; }
  static auto fields(auto& m) { return std::tie(m.bits); }
};
constexpr SampleGroups operator|(SampleGroup a, SampleGroup b) {
  SampleGroups both = a;
  both.bits |= SampleGroups(b).bits;
  return both;
}

enum class RankActivity : uint8_t { kEnded = 0, kRuns = 1, kStopped = 2 };

// Resource usage of a rank's process and its descendants. Times, faults and storage bytes never decrease, even when a
// process ends.
struct ProcessUsage {
  uint64_t cpu_microseconds = 0;
  uint64_t run_delay_microseconds = 0;  // runnable, but not running
  uint64_t minor_faults = 0, major_faults = 0;
  uint64_t read_bytes = 0, written_bytes = 0;  // bytes from and to storage
  uint64_t resident_bytes = 0;
  uint64_t threads = 0;
  uint64_t processes = 0;
  uint64_t gpu_bytes = 0;  // memory on GPUs, as nvidia-smi or rocm-smi shows it
};

// Counts that the rank itself maintains.
struct RankCounts {
  uint64_t steps = 0;
  uint64_t operations = 0, failed_operations = 0;
  uint64_t bytes = 0;
  uint64_t waited_microseconds = 0;  // time until other ranks had agreed
  uint64_t pending = 0;
};
RankCounts counts_of(const Metrics& metrics);

struct RankMetrics {
  int32_t rank = 0;  // number of the rank's process in the plan
  RankActivity activity = RankActivity::kEnded;
  uint8_t has_joined = 0;    // the rank has called hvd.init()
  uint8_t has_counters = 0;  // the agent can read the rank's counters
  int32_t gpu_percent = -1;  // share of time in which the rank's busiest GPU computed; -1: unknown
  uint8_t is_on_disk = 0;    // a process waits for a disk or a network file system (state D)
  int32_t pid = 0;           // pid of the rank's first process; 0: not running
  uint64_t age_milliseconds = 0;  // age of the process `pid`
  // Means over the rank's last training steps; 0 before the first step.
  uint64_t step_microseconds = 0;
  uint32_t waited_thousandths = 0;      // wait until all ranks had agreed, in thousandths of a step
  uint64_t throttled_microseconds = 0;  // time stopped by a CPU quota of the cgroup; with kPressure
  RankCounts counts{};
  ProcessUsage usage{};
};

// Counts of a host since its boot.
struct HostPressure {
  uint64_t steal_microseconds = 0;  // time that a hypervisor took from the host's processors
  uint64_t processors = 1;
  uint64_t swapped_in = 0;   // pages
  uint64_t retransmits = 0;  // TCP segments
};

// The sums of the counters of a host's ranks, and the metrics of each rank and its processes.
struct HostMetrics {
  Metrics sum{};
  // Milliseconds since the last training step of any rank; -1: no rank has made a step.
  int64_t step_age = -1;
  HostPressure pressure{};  // with kPressure
  std::vector<RankMetrics> ranks{};
  // Describes values that the agent cannot show, without the host's name; or empty.
  std::string remark{};
};

// Counts since the start of a rank's processes. A change of one count shows that the rank makes progress.
struct RankSigns {
  int32_t rank = 0;  // number of the rank's process in the plan
  // A process is stopped or traced, or reads user input, which may take any time.
  uint8_t is_excused = 0;
  uint8_t is_hidden = 0;   // the agent cannot read some of these values
  uint64_t processes = 0;  // digest of the processes and their sockets
  // The time during which the main thread of the rank's Python was running, or runnable.
  uint64_t main_microseconds = 0;
  // CPU time of all other threads and processes, and the sum of their waits for a processor.
  uint64_t other_microseconds = 0, other_delay_microseconds = 0;
  uint64_t bytes = 0, calls = 0;  // bytes and number of read(2), write(2) and similar system calls
  uint64_t storage_bytes = 0;     // read and written, also through mapped files
  uint64_t socket_bytes = 0;      // received and sent by TCP
  // When the agent last saw the rank's program:
  uint8_t has_torch = 0;                  // it had loaded PyTorch
  std::vector<VariableChange> changes{};  // of kWorldVariables
  // The time during which each look of the agent saw PyTorch in the program, and no connection to another process. It
  // ends with the last look. 0: never, or the last look saw a connection.
  uint64_t alone_milliseconds = 0;
};

// The place of a rank in its program. Texts are not escaped, and have at most kMostPlaceText bytes each.
struct RankPlace {
  int32_t rank = 0;
  uint8_t is_excused = 0;     // in a debugger, or in a server without clients
  uint8_t is_collective = 0;  // waiting for other ranks
  std::string library{};    // library in which the rank waits: "torch.distributed (gloo)"; or empty
  std::string operation{};  // "all_reduce"
  std::string function{};   // the user's function, or the library function that it has called
  std::string line{};       // "train.py:88", the user's line; empty: without a Python stack
  std::string state{};      // state in the kernel: "sleeping in futex_wait (python3 train.py)"
  uint64_t frames = 0;      // a digest of the rank's stack, or of `state`
  std::string no_stack{};   // why the rank's Python stack could not be read, as a sentence
};
inline constexpr size_t kMostPlaceText = 400;

struct StepSample {
  uint32_t microseconds = 0;
  uint32_t waited = 0;  // microseconds: longest wait of an operation for other ranks
  // The two members identify the call that ended the step, as in StepLog, and are equal on all ranks.
  uint32_t ended_by = 0;
  uint32_t call = 0;
  uint32_t device = 0;  // microseconds: longest execution of a batch on the rank's GPU

  // As in StepLog: ranks differ in this sum by their lateness.
  uint64_t wait_and_transfer() const { return uint64_t{waited} + device; }
};

// The last training steps of a rank.
struct RankSteps {
  int32_t rank = 0;        // number of the rank's process in the plan
  int32_t world_size = 0;  // number of the ranks that communicate
  uint64_t ended = 0;  // number of steps that have ended; a step has the same number on all ranks
  std::vector<StepSample> last{};
  // The sums over all steps, in microseconds.
  uint64_t total = 0, total_waited = 0;
  // The operation with the longest waits in `last`, at most OperationNames::kMostText bytes, not escaped; may be empty.
  std::string awaited{};
  uint64_t awaited_microseconds = 0;
};
// Maximum number of steps in `last`: agents reply at different times, and their windows of 50 steps must overlap.
constexpr size_t kMostStepSamples = 100;

RankSteps steps_of(const RankCounters& counters);

// The number of operations that a rank has announced, as in Announcements.
struct RankAnnounced {
  int32_t rank = 0;        // number of the rank's process in the plan
  int32_t world_size = 0;  // number of the ranks that communicate
  uint64_t operations = 0;
  uint64_t joins = 0;
};

struct HostSample {
  std::vector<HostMetrics> metrics{};  // at most one
  std::vector<RankSigns> signs{};
  std::vector<RankPlace> places{};  // answers Inspect, not TakeSample
  std::vector<RankSteps> steps{};
  std::vector<RankAnnounced> announced{};
};
// Returns false if an agent reports impossible values, for example a text above its limit.
bool is_possible(const HostSample& sample);

// An agent's reply: text for Inspect, else a sample. Without content if the agent did not reply.
struct HostAnswer {
  std::string text{};
  HostSample sample{};
};

}  // namespace hvd::launcher
