// NCCL's entry points: communicators that do not block, over sockets of one host. See README.md.
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "base/dtype.h"
#include "base/half.h"
#include "base/unique_fd.h"
#include "ops/common/batch_memory.h"
#include "ops/nccl/abi.h"
#include "plugins/nccl/double.h"

namespace abi = hvd::ops::nccl::abi;

namespace hvd::test_double {
namespace {

constexpr int kUnhandledCuda = 1, kInvalidUsage = 5, kRemote = 6;
constexpr int kFirstOwnSum = 100;

// Shared by the user's handle and by what streams still do.
struct Link {
  UniqueFd socket;
  int rank = 0, size = 1;
  std::atomic<int> state{abi::kInProgress};
  std::atomic<int> starting{0};  // groups that are not on their stream yet
  std::atomic<int64_t> groups_left{variable("HVD_DOUBLE_FAILS_AFTER", INT64_MAX)};
  std::vector<std::pair<int, double>> sums;  // own reductions: type, factor

  // Once wrong, for ever wrong.
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
};
// The group that this thread is in.
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

bool send_calls(const Link& link, const std::vector<Pending>& calls) {
  const uint64_t count = calls.size();
  if (!send_all(link.socket.get(), &count, sizeof count)) return false;
  for (const Pending& one : calls) {
    const bool brings = one.call.kind != Call::kBroadcast || one.call.peer == link.rank;
    const uint64_t size = brings ? bytes_in(one.call, link.size) : 0;
    std::vector<std::byte> input(one.from, one.from + size);
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

// The work of the kernel, once the stream reaches it.
void run_group(const std::shared_ptr<Link>& link, const std::vector<Pending>& calls) {
  char answer = '!';
  if (!send_calls(*link, calls) || !receive_all(link->socket.get(), &answer, 1) || answer != '+') {
    return link->become(answer == '-' ? kInvalidUsage : kRemote);
  }
  for (const Pending& one : calls) {
    uint64_t size = 0;
    if (!receive_all(link->socket.get(), &size, sizeof size) ||
        !receive_all(link->socket.get(), one.to, size)) {
      return link->become(kRemote);
    }
  }
}

int finish_group() {
  Group done = std::move(group());
  group() = {};
  if (done.calls.empty()) return abi::kSuccess;
  const std::shared_ptr<Link> link = done.comm->link;
  if (link->groups_left.fetch_sub(1) <= 0) {
    link->become(kRemote);
    ::shutdown(link->socket.get(), SHUT_RDWR);
    return kRemote;
  }
  int settled = abi::kSuccess;
  if (!link->state.compare_exchange_strong(settled, abi::kInProgress)) return kInvalidUsage;
  link->starting.fetch_add(1);
  // It is on the stream only a moment later, as in a communicator that does not block.
  std::thread([link, stream = done.stream, calls = std::move(done.calls)] {
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    enqueue(stream, [link, calls] { run_group(link, calls); });
    int started = abi::kInProgress;
    link->state.compare_exchange_strong(started, abi::kSuccess);
    link->starting.fetch_sub(1);
  }).detach();
  return abi::kInProgress;
}

int add(Call call, const void* from, void* to, abi::Comm* comm, void* stream) {
  if (comm->link->state.load() != abi::kSuccess) return kInvalidUsage;
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
  now.comm = comm;
  now.stream = stream;
  now.calls.push_back(
      {call, static_cast<const std::byte*>(from), static_cast<std::byte*>(to), factor});
  return now.depth == 0 ? finish_group() : abi::kSuccess;
}

void join_hub(const std::shared_ptr<Link>& link, const abi::UniqueId& id) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name(id.internal, ::strnlen(id.internal, sizeof id.internal));
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int32_t hello[] = {link->rank, link->size};
  char go = 0;
  const bool joined = ::connect(link->socket.get(), reinterpret_cast<const sockaddr*>(&address),
                                sizeof address) == 0 &&
                      send_all(link->socket.get(), hello, sizeof hello) &&
                      receive_all(link->socket.get(), &go, 1);
  link->become(joined ? abi::kSuccess : kRemote);
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
  *version = static_cast<int>(variable("HVD_DOUBLE_VERSION", 21805));
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
  link->rank = rank;
  link->size = ranks;
  link->socket.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  log("init " + std::to_string(rank) + " of " + std::to_string(ranks));
  std::thread([link, id] { join_hub(link, id); }).detach();
  return abi::kInProgress;
}
int ncclCommInitRank(abi::Comm** comm, int ranks, abi::UniqueId id, int rank) {
  abi::Config config{sizeof config, abi::kConfigMagic, abi::kConfigVersion, 1};
  ncclCommInitRankConfig(comm, ranks, id, rank, &config);
  while ((*comm)->link->state.load() == abi::kInProgress) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return (*comm)->link->state.load();
}
int ncclCommDestroy(abi::Comm* comm) {
  log("destroy");
  ::shutdown(comm->link->socket.get(), SHUT_RDWR);
  // The caller may end the stream now.
  while (comm->link->starting.load() > 0) std::this_thread::yield();
  delete comm;
  return abi::kSuccess;
}
int ncclCommAbort(abi::Comm* comm) {
  log("abort");
  return ncclCommDestroy(comm);
}
int ncclCommGetAsyncError(abi::Comm* comm, int* result) {
  *result = comm->link->state.load();
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
  if (comm->link->state.load() != abi::kSuccess) return kInvalidUsage;
  auto& sums = comm->link->sums;
  *operation = kFirstOwnSum + static_cast<int>(sums.size());
  sums.emplace_back(type, factor_of(type, scalar));
  return abi::kSuccess;
}
int ncclRedOpDestroy(int, abi::Comm*) { return abi::kSuccess; }

}  // extern "C"
#pragma GCC visibility pop
