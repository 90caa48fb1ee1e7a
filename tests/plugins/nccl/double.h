// Declarations shared by the parts of the double. See README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace hvd::test_double {

// A rule of NCCL or CUDA that a correct caller never breaks. HVD_DOUBLE_RULES names the rules to
// check in addition to those that are always checked.
struct Rule {
  const char* name;
  bool is_always_checked;
};
constexpr Rule kOneThread{"one_thread", true};       // one thread uses a communicator at a time
constexpr Rule kOneLauncher{"one_launcher", false};  // one thread launches on a device at a time
constexpr Rule kLaunchOrder{"launch_order", false};  // same order on all ranks
constexpr Rule kPlaces{"places", true};              // each kernel gets one of HVD_DOUBLE_PLACES
// Memory in use stays allocated, and the CPU does not access memory that operations use.
constexpr Rule kMemory{"memory", true};
constexpr Rule kHostFunction{"host_function", true};  // a host function does not call CUDA
constexpr Rule kOneContext{"one_context", false};     // a process uses one device
bool is_checked(const Rule& rule);
// Adds a finding: prints a line and the stack on standard error, and makes the process exit with
// code 86, unless a test takes the finding first (hvd_double_take_findings).
void report(const Rule& rule, const std::string& sentence);
// Returns whether HVD_DOUBLE_IGNORES names this CUDA function. An ignored call succeeds without
// effect: a test that needs the call must fail.
bool is_ignored(const char* call);

struct Stream;
// Returns the stream of a call. 0 is the default stream of the thread's current device.
Stream* stream_of(void* stream);
// Runs `work` when the stream reaches it.
void enqueue(void* stream, std::function<void()> work);
bool is_current_device(void* stream);
int current_device_number();
int64_t variable(const char* name, int64_t otherwise);
void log(const std::string& line);

// One call inside a group.
struct Call {
  enum Kind : int32_t { kAllReduce, kReduce, kBroadcast, kReduceScatter, kAllGather, kSend, kRecv };
  int32_t kind, type, operation, peer;  // peer: also a root
  uint64_t count;
  bool matches(const Call& other) const {
    return kind == other.kind && type == other.type && operation == other.operation &&
           peer == other.peer && count == other.count;
  }
  bool is_collective() const { return kind < kSend; }
};
// By communicator: the number of groups that a device launched before a group.
using LaunchCounts = std::map<std::string, uint64_t>;
size_t width_of(int type);
int dtype_of(int type);

// The first message of a rank to the hub.
struct Hello {
  int32_t rank, size, device;
  int32_t may_share;  // 1 if the rank may share its device with ranks of its host
  uint64_t host;
};

// Serves one communicator on a new thread. Returns its address.
std::string open_hub();
// Returns whether destroying a communicator waits for its other members (HVD_DOUBLE_DESTROY_WAITS).
bool waits_in_destroy();
// Transfers all bytes, or returns false.
bool send_all(int socket, const void* bytes, size_t size);
bool receive_all(int socket, void* bytes, size_t size);

}  // namespace hvd::test_double
