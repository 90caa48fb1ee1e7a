// NCCL's entry points: communicators over sockets of one host. See README.md.
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "base/dtype.h"
#include "base/half.h"
#include "base/unique_fd.h"
#include "ops/common/batch_memory.h"
#include "ops/nccl/abi.h"
#include "plugins/nccl/double.h"
#include "plugins/nccl/double_group_job.h"
#include "plugins/nccl/double_launches.h"
#include "plugins/nccl/double_memory.h"
#include "plugins/nccl/double_occupancy.h"
#include "plugins/nccl/double_process.h"

namespace abi = hvd::ops::nccl::abi;

namespace hvd::test_double {
namespace {

constexpr int kUnhandledCuda = 1, kInvalidUsage = 5, kRemote = 6;
constexpr int kFirstOwnSum = 100;
// Since this version ncclCommGetAsyncError completes the job of the last group.
constexpr int kCompletesJobs = 22600;
// Since this version ranks of one host may share a GPU, with NCCL_MULTI_RANK_GPU_ENABLE=1.
constexpr int kSharesDevices = 23000;

int version() { return static_cast<int>(variable("HVD_DOUBLE_VERSION", 21805)); }

// Shared by the user's handle and the streams' pending work.
struct Link {
  UniqueFd socket;
  std::string name;  // equal on all ranks
  int rank = 0, size = 1, device = 0;
  bool is_blocking = false;
  Occupancy occupancy;
  std::atomic<GroupJob*> job{nullptr};  // job of the last group, until it is complete
  Mutex mutex;
  std::deque<std::unique_ptr<GroupJob>> jobs HVD_GUARDED_BY(mutex);
  std::atomic<int> state{abi::kInProgress};
  std::atomic<int> starting{0};               // groups that no stream has yet
  std::atomic<int64_t> launched{0}, over{0};  // numbers of kernels
  std::atomic<int64_t> groups_left{variable("HVD_DOUBLE_FAILS_AFTER", INT64_MAX)};
  std::vector<std::pair<int, double>> sums;  // custom reductions: type, factor

  void start_job(std::function<void()> launch) {
    const MutexLock lock(mutex);
    job.store(jobs.emplace_back(std::make_unique<GroupJob>(std::move(launch))).get());
  }
  void complete_job() {
    GroupJob* const last = job.load();
    if (last == nullptr) return;
    last->complete(version());
    job.store(nullptr);
  }

  // An error state is final.
  void become(int next) {
    int now = state.load();
    while (now <= abi::kSuccess || now == abi::kInProgress) {
      if (state.compare_exchange_weak(now, next)) return;
    }
  }
};

}  // namespace
}  // namespace hvd::test_double

using namespace hvd::test_double;

namespace hvd::ops::nccl::abi {
struct Comm {
  std::shared_ptr<Link> link = std::make_shared<Link>();
};
}  // namespace hvd::ops::nccl::abi

namespace {

struct Pending {
  Call call;
  const std::byte* from;
  std::byte* to;
  double factor;
  // Lives from the call until the kernel is over.
  std::shared_ptr<const MemoryUse> reads, writes;

  bool check() const {
    return (reads == nullptr || reads->check()) && (writes == nullptr || writes->check());
  }
};
// The current group of this thread.
struct Group {
  int depth = 0;
  abi::Comm* comm = nullptr;
  void* stream = nullptr;
  std::vector<Pending> calls;
};
Group& group() {
  static thread_local Group group;
  return group;
}

size_t bytes_in(const Call& call, int size) {
  if (call.kind == Call::kRecv) return 0;
  const size_t bytes = call.count * width_of(call.type);
  return call.kind == Call::kReduceScatter ? bytes * static_cast<size_t>(size) : bytes;
}

bool send_counts(int socket, const LaunchCounts& counts) {
  const uint64_t size = counts.size();
  bool sent = send_all(socket, &size, sizeof size);
  for (const auto& [communicator, count] : counts) {
    const uint64_t length = communicator.size();
    sent = sent && send_all(socket, &length, sizeof length) &&
           send_all(socket, communicator.data(), length) && send_all(socket, &count, sizeof count);
  }
  return sent;
}

bool send_calls(const Link& link, const std::vector<Pending>& calls, const LaunchCounts& before) {
  const uint64_t count = calls.size();
  if (!send_counts(link.socket.get(), before) ||
      !send_all(link.socket.get(), &count, sizeof count)) {
    return false;
  }
  for (const Pending& one : calls) {
    const bool brings = one.call.kind != Call::kBroadcast || one.call.peer == link.rank;
    const uint64_t size = brings ? bytes_in(one.call, link.size) : 0;
    const std::byte* from = for_kernel(one.from);
    std::vector<std::byte> input(from, from + size);
    if (one.factor != 1) {
      const int dtype = dtype_of(one.call.type);
      hvd::ops::scale(input.data(), input.data(), dtype,
                      static_cast<int64_t>(size / width_of(one.call.type)),
                      hvd::collectives::scale_by(one.factor));
    }
    if (!send_all(link.socket.get(), &one.call, sizeof one.call) ||
        !send_all(link.socket.get(), &size, sizeof size) ||
        !send_all(link.socket.get(), input.data(), size)) {
      return false;
    }
  }
  return true;
}

std::atomic<int64_t>& kernels_left() {
  static std::atomic<int64_t> left{variable("HVD_DOUBLE_FAULT_AFTER", INT64_MAX)};
  return left;
}

// The kernel's work, once the stream reaches it.
void run_group(const std::shared_ptr<Link>& link, const std::vector<Pending>& calls,
               const LaunchCounts& before) {
  char answer = '!';
  if (kernels_left().fetch_sub(1) <= 0) fail_kernel();
  if (has_kernel_failed()) return;
  if (!std::all_of(calls.begin(), calls.end(), [](const Pending& one) { return one.check(); })) {
    return link->become(kUnhandledCuda);
  }
  if (!send_calls(*link, calls, before) || !receive_all(link->socket.get(), &answer, 1) ||
      answer != '+') {
    link->become(answer == '-' ? kInvalidUsage : kRemote);
    std::this_thread::sleep_for(std::chrono::microseconds(variable("HVD_DOUBLE_DYING_US", 0)));
    return;
  }
  for (const Pending& one : calls) {
    uint64_t size = 0;
    if (!receive_all(link->socket.get(), &size, sizeof size) ||
        !receive_all(link->socket.get(), for_kernel(one.to), size)) {
      return link->become(kRemote);
    }
  }
}

int finish_group() {
  Group done = std::move(group());
  group() = {};
  if (done.calls.empty()) return abi::kSuccess;
  const std::shared_ptr<Link> link = done.comm->link;
  const CallScope scope(link->occupancy, "ncclGroupEnd");
  link->occupancy.leave();  // the group is over
  if (link->groups_left.fetch_sub(1) <= 0) {
    link->become(kRemote);
    return kRemote;
  }
  int settled = abi::kSuccess;
  if (!link->state.compare_exchange_strong(settled, abi::kInProgress)) return kInvalidUsage;
  link->starting.fetch_add(1);
  DeviceLaunches& launches = DeviceLaunches::of(link->device);
  launches.begin(own_thread(), link->name);
  auto launch = [link, &launches, stream = done.stream,
                 calls = std::make_shared<std::vector<Pending>>(std::move(done.calls))] {
    std::this_thread::sleep_for(std::chrono::microseconds(variable("HVD_DOUBLE_LAUNCH_US", 500)));
    launches.launch(link->name, [&](const LaunchCounts& before) {
      link->launched.fetch_add(1);
      enqueue(stream, [link, &launches, calls, before] {
        launches.take_place();
        run_group(link, *calls, before);
        calls->clear();
        launches.give_place();
        link->over.fetch_add(1);
      });
    });
    launches.end();
    int started = abi::kInProgress;
    link->state.compare_exchange_strong(started, abi::kSuccess);
    link->starting.fetch_sub(1);
  };
  if (link->is_blocking) {
    launch();
    return link->state.load();
  }
  link->start_job(std::move(launch));
  return abi::kInProgress;
}

// ncclCommEnsureReady
int ensure_ready(Link& link) {
  const int state = link.state.load();
  if (state == abi::kSuccess) link.complete_job();
  return state == abi::kSuccess ? abi::kSuccess : kInvalidUsage;
}

int add(Call call, const void* from, void* to, abi::Comm* comm, void* stream) {
  const CallScope scope(comm->link->occupancy, "a collective");
  if (const int code = ensure_ready(*comm->link); code != abi::kSuccess) return code;
  if (!is_current_device(stream)) return kUnhandledCuda;
  Group& now = group();
  if (now.comm != nullptr && now.comm != comm) return kInvalidUsage;
  double factor = 1;
  if (call.operation >= kFirstOwnSum) {
    const auto& sum = comm->link->sums[static_cast<size_t>(call.operation - kFirstOwnSum)];
    if (sum.first != call.type) return kInvalidUsage;
    factor = sum.second;
    call.operation = abi::kSum;
  }
  if (now.comm == nullptr) comm->link->occupancy.enter("a group");  // until finish_group
  now.comm = comm;
  now.stream = stream_of(stream);
  const auto use = [device = comm->link->device](const void* memory) {
    return memory == nullptr ? nullptr
                             : std::make_shared<const MemoryUse>(memory, "a collective", device);
  };
  now.calls.push_back({call, static_cast<const std::byte*>(from), static_cast<std::byte*>(to),
                       factor, use(from), use(to)});
  return now.depth == 0 ? finish_group() : abi::kSuccess;
}

// NCCL's hash of the host: ranks with different values of NCCL_HOSTID are on different hosts.
uint64_t own_host() {
  const char* fixed = std::getenv("HVD_DOUBLE_HOST");
  const char* host = fixed != nullptr ? fixed : std::getenv("NCCL_HOSTID");
  return std::hash<std::string>()(host != nullptr ? host : "");
}

bool may_share_device() {
  return version() >= kSharesDevices && variable("NCCL_MULTI_RANK_GPU_ENABLE", 0) != 0;
}

void join_hub(const std::shared_ptr<Link>& link) {
  std::this_thread::sleep_for(std::chrono::milliseconds(variable("HVD_DOUBLE_START_MS", 0)));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, link->name.data(), link->name.size());
  const Hello hello{link->rank, link->size, link->device, may_share_device() ? 1 : 0, own_host()};
  char go = 0;
  const bool joined = ::connect(link->socket.get(), reinterpret_cast<const sockaddr*>(&address),
                                sizeof address) == 0 &&
                      send_all(link->socket.get(), &hello, sizeof hello) &&
                      receive_all(link->socket.get(), &go, 1);
  link->become(!joined ? kRemote : go == '+' ? abi::kSuccess : kInvalidUsage);
}

// The caller may destroy the stream afterwards.
void give_up(Link& link) {
  ::shutdown(link.socket.get(), SHUT_RDWR);
  DeviceLaunches::of(link.device).remove(link.name);
  while (link.starting.load() > 0) std::this_thread::yield();
  const hvd::MutexLock lock(link.mutex);
  for (const auto& job : link.jobs) job->end();
}

double factor_of(int type, const void* scalar) {
  uint16_t half = 0;
  float single = 0;
  double whole = 0;
  switch (type) {
    case abi::kFloat16:
    case abi::kBfloat16:
      std::memcpy(&half, scalar, sizeof half);
      return static_cast<double>(type == abi::kFloat16 ? hvd::float_of_half(half)
                                                       : hvd::float_of_bfloat(half));
    case abi::kFloat32:
      std::memcpy(&single, scalar, sizeof single);
      return static_cast<double>(single);
    default:
      std::memcpy(&whole, scalar, sizeof whole);
      return whole;
  }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int ncclGetVersion(int* version) {
  *version = ::version();
  return abi::kSuccess;
}
int ncclGetUniqueId(abi::UniqueId* id) {
  const std::string name = open_hub();
  if (name.empty()) return kUnhandledCuda;
  *id = {};
  std::memcpy(id->internal, name.data(), name.size());
  return abi::kSuccess;
}
const char* ncclGetErrorString(int result) {
  switch (result) {
    case kInvalidUsage:
      return "invalid usage";
    case kRemote:
      return "remote process exited or there was a network error";
    case kUnhandledCuda:
      return "unhandled cuda error";
    default:
      return "no error";
  }
}
const char* ncclGetLastError(abi::Comm*) { return ""; }
int ncclCommInitRankConfig(abi::Comm** comm, int ranks, abi::UniqueId id, int rank,
                           abi::Config* config) {
  if (config->size != sizeof *config || config->magic != abi::kConfigMagic) return kInvalidUsage;
  *comm = new abi::Comm;
  const std::shared_ptr<Link> link = (*comm)->link;
  link->name.assign(id.internal, ::strnlen(id.internal, sizeof id.internal));
  link->rank = rank;
  link->size = ranks;
  link->device = current_device_number();
  link->is_blocking = config->blocking != 0;
  DeviceLaunches::of(link->device).add(link->name);
  link->socket.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  log("init " + std::to_string(rank) + " of " + std::to_string(ranks));
  if (link->is_blocking) {
    join_hub(link);
    return link->state.load();
  }
  std::thread([link] { join_hub(link); }).detach();
  return abi::kInProgress;
}
int ncclCommInitRank(abi::Comm** comm, int ranks, abi::UniqueId id, int rank) {
  abi::Config config{sizeof config, abi::kConfigMagic, abi::kConfigVersion, 1};
  return ncclCommInitRankConfig(comm, ranks, id, rank, &config);
}
int ncclCommDestroy(abi::Comm* comm) {
  log("destroy");
  {
    const CallScope scope(comm->link->occupancy, "ncclCommDestroy");
    char byte = 0;
    if (waits_in_destroy()) {
      ::shutdown(comm->link->socket.get(), SHUT_WR);
      while (receive_all(comm->link->socket.get(), &byte, 1)) {
      }
    }
    give_up(*comm->link);
  }
  delete comm;
  return abi::kSuccess;
}
// Legal while another thread's call uses the communicator: that call then ends. The communicator's
// kernels end once they see the flag, and the call waits for them, as in NCCL 2.14 to 2.30. Earlier
// kernels on the stream that belong to other communicators wait for their own flags.
int ncclCommAbort(abi::Comm* comm) {
  log("abort");
  log("destroy");
  std::this_thread::sleep_for(std::chrono::milliseconds(variable("HVD_DOUBLE_ABORT_MS", 0)));
  comm->link->become(kRemote);
  ::shutdown(comm->link->socket.get(), SHUT_RDWR);
  comm->link->occupancy.wait_for_others();
  give_up(*comm->link);
  while (comm->link->over.load() < comm->link->launched.load()) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  delete comm;
  return abi::kSuccess;
}
int ncclCommGetAsyncError(abi::Comm* comm, int* result) {
  Link& link = *comm->link;
  if (version() < kCompletesJobs) {  // this version only reads an atomic
    *result = link.state.load();
    return abi::kSuccess;
  }
  const CallScope scope(link.occupancy, "ncclCommGetAsyncError");
  *result = link.state.load();
  if (*result == abi::kSuccess) link.complete_job();
  return abi::kSuccess;
}
int ncclGroupStart() {
  ++group().depth;
  return abi::kSuccess;
}
int ncclGroupEnd() { return --group().depth == 0 ? finish_group() : abi::kSuccess; }
int ncclAllReduce(const void* from, void* to, size_t count, int type, int operation,
                  abi::Comm* comm, void* stream) {
  return add({Call::kAllReduce, type, operation, 0, count}, from, to, comm, stream);
}
int ncclReduce(const void* from, void* to, size_t count, int type, int operation, int root,
               abi::Comm* comm, void* stream) {
  return add({Call::kReduce, type, operation, root, count}, from, to, comm, stream);
}
int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, abi::Comm* comm,
                  void* stream) {
  return add({Call::kBroadcast, type, 0, root, count}, from, to, comm, stream);
}
int ncclReduceScatter(const void* from, void* to, size_t kept, int type, int operation,
                      abi::Comm* comm, void* stream) {
  return add({Call::kReduceScatter, type, operation, 0, kept}, from, to, comm, stream);
}
int ncclAllGather(const void* from, void* to, size_t sent, int type, abi::Comm* comm,
                  void* stream) {
  return add({Call::kAllGather, type, 0, 0, sent}, from, to, comm, stream);
}
int ncclSend(const void* from, size_t count, int type, int peer, abi::Comm* comm, void* stream) {
  return add({Call::kSend, type, 0, peer, count}, from, nullptr, comm, stream);
}
int ncclRecv(void* to, size_t count, int type, int peer, abi::Comm* comm, void* stream) {
  return add({Call::kRecv, type, 0, peer, count}, nullptr, to, comm, stream);
}
int ncclRedOpCreatePreMulSum(int* operation, void* scalar, int type, int, abi::Comm* comm) {
  const CallScope scope(comm->link->occupancy, "ncclRedOpCreatePreMulSum");
  if (const int code = ensure_ready(*comm->link); code != abi::kSuccess) return code;
  auto& sums = comm->link->sums;
  *operation = kFirstOwnSum + static_cast<int>(sums.size());
  sums.emplace_back(type, factor_of(type, scalar));
  return abi::kSuccess;
}
int ncclRedOpDestroy(int, abi::Comm*) { return abi::kSuccess; }

}  // extern "C"
#pragma GCC visibility pop
