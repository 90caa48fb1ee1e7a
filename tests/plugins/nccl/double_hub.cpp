// The server of a communicator, which computes its results. See README.md.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "base/dtype.h"
#include "base/half.h"
#include "base/unique_fd.h"
#include "collectives/kernels/reduce_kernels.h"
#include "ops/common/batch_memory.h"
#include "ops/nccl/abi.h"
#include "plugins/nccl/double.h"

namespace hvd::test_double {
namespace {

namespace abi = ops::nccl::abi;
using Bytes = std::vector<std::byte>;

// The calls and data of one rank in one group.
struct Part {
  LaunchCounts before;  // earlier launches of the rank's device
  std::vector<Call> calls;
  std::vector<Bytes> inputs, outputs;  // data of each call
};

int reduce_op_of(int operation) {
  switch (operation) {
    case abi::kProduct:
      return HVD_PRODUCT;
    case abi::kMax:
      return HVD_MAX;
    case abi::kMin:
      return HVD_MIN;
    default:
      return HVD_SUM;
  }
}

double round_to(hvd_dtype dtype, double value) {
  const auto single = static_cast<float>(value);
  return static_cast<double>(dtype == HVD_FLOAT16 ? float_of_half(half_of_float(single))
                                                  : float_of_bfloat(bfloat_of_float(single)));
}

// Adds the last rank's data first: NCCL sums in another order than the runtime does in host memory.
Bytes reduce(std::vector<Part>& parts, size_t index) {
  const Call& call = parts[0].calls[index];
  const auto dtype = static_cast<hvd_dtype>(dtype_of(call.type));
  Bytes result = parts.back().inputs[index];
  const size_t count = result.size() / width_of(call.type);
  const auto function =
      collectives::reduce_function(dtype, static_cast<hvd_reduce_op>(reduce_op_of(call.operation)));
  const auto size = static_cast<double>(parts.size());
  const auto quotient = collectives::divide_by(static_cast<int32_t>(parts.size()));
  // NCCL multiplies each summand by a factor of the tensor's type.
  const bool divides_first =
      call.operation == abi::kAverage && (dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16);
  const collectives::Scale before =
      divides_first ? collectives::scale_by(round_to(dtype, 1 / size)) : collectives::Scale{};
  ops::scale(result.data(), result.data(), dtype, static_cast<int64_t>(count), before);
  for (size_t rank = parts.size() - 1; rank-- > 0;) {
    Bytes input = parts[rank].inputs[index];
    ops::scale(input.data(), input.data(), dtype, static_cast<int64_t>(count), before);
    const void* const inputs[] = {result.data(), input.data()};
    function(result.data(), inputs, 2, count, {}, {});
  }
  if (call.operation == abi::kAverage && !divides_first) {
    ops::scale(result.data(), result.data(), dtype, static_cast<int64_t>(count), quotient);
  }
  return result;
}

void run_collective(std::vector<Part>& parts, size_t index) {
  const Call& call = parts[0].calls[index];
  const auto root = static_cast<size_t>(call.peer);
  Bytes whole;
  if (call.kind == Call::kBroadcast) {
    whole = parts[root].inputs[index];
  } else if (call.kind == Call::kAllGather) {
    for (Part& part : parts) {
      whole.insert(whole.end(), part.inputs[index].begin(), part.inputs[index].end());
    }
  } else {
    whole = reduce(parts, index);
  }
  const size_t kept = whole.size() / parts.size();
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    if (call.kind == Call::kReduce && rank != root) continue;
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(
                                           call.kind == Call::kReduceScatter ? kept * rank : 0);
    const auto end =
        call.kind == Call::kReduceScatter ? begin + static_cast<std::ptrdiff_t>(kept) : whole.end();
    parts[rank].outputs[index].assign(begin, end);
  }
}

// Matches sends in the sender's order with receives in the receiver's order.
bool match_pairs(std::vector<Part>& parts) {
  std::map<std::pair<size_t, size_t>, std::vector<Bytes*>> sent;
  size_t left = 0;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    for (size_t i = 0; i < parts[rank].calls.size(); ++i) {
      if (parts[rank].calls[i].kind != Call::kSend) continue;
      sent[{rank, static_cast<size_t>(parts[rank].calls[i].peer)}].push_back(
          &parts[rank].inputs[i]);
      ++left;
    }
  }
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    for (size_t i = 0; i < parts[rank].calls.size(); ++i) {
      const Call& call = parts[rank].calls[i];
      if (call.kind != Call::kRecv) continue;
      auto& from = sent[{static_cast<size_t>(call.peer), rank}];
      if (from.empty() || from.front()->size() != call.count * width_of(call.type)) return false;
      parts[rank].outputs[i] = *from.front();
      from.erase(from.begin());
      --left;
    }
  }
  return left == 0;
}

bool run(std::vector<Part>& parts) {
  for (const Part& part : parts) {
    if (parts[0].calls.empty() || parts[0].calls[0].is_collective()) {
      if (part.calls.size() != parts[0].calls.size()) return false;
      for (size_t i = 0; i < part.calls.size(); ++i) {
        if (!part.calls[i].matches(parts[0].calls[i])) return false;
      }
    }
  }
  if (parts[0].calls.empty() || !parts[0].calls[0].is_collective()) return match_pairs(parts);
  for (size_t i = 0; i < parts[0].calls.size(); ++i) run_collective(parts, i);
  return true;
}

bool receive_counts(int socket, LaunchCounts* counts) {
  uint64_t size = 0;
  if (!receive_all(socket, &size, sizeof size)) return false;
  for (uint64_t i = 0; i < size; ++i) {
    uint64_t length = 0, count = 0;
    if (!receive_all(socket, &length, sizeof length)) return false;
    std::string communicator(length, ' ');
    if (!receive_all(socket, communicator.data(), length) ||
        !receive_all(socket, &count, sizeof count)) {
      return false;
    }
    (*counts)[communicator] = count;
  }
  return true;
}

// Ranks that share two communicators must launch the groups of both in the same order.
void compare_orders(const std::vector<Part>& parts, const std::string& name) {
  for (size_t one = 0; one < parts.size(); ++one) {
    for (size_t other = one + 1; other < parts.size(); ++other) {
      for (const auto& [communicator, count] : parts[one].before) {
        const auto found = parts[other].before.find(communicator);
        if (found == parts[other].before.end() || found->second == count) continue;
        return report(kLaunchOrder, "before a group of " + name + " its rank " +
                                        std::to_string(one) + " launched " + std::to_string(count) +
                                        " groups of " + communicator + ", and its rank " +
                                        std::to_string(other) + " launched " +
                                        std::to_string(found->second));
      }
    }
  }
}

bool receive_part(int socket, Part* part) {
  uint64_t count = 0;
  if (!receive_counts(socket, &part->before)) return false;
  if (!receive_all(socket, &count, sizeof count)) return false;
  for (uint64_t i = 0; i < count; ++i) {
    Call call{};
    uint64_t size = 0;
    if (!receive_all(socket, &call, sizeof call) || !receive_all(socket, &size, sizeof size)) {
      return false;
    }
    Bytes input(size);
    if (!receive_all(socket, input.data(), size)) return false;
    part->calls.push_back(call);
    part->inputs.push_back(std::move(input));
  }
  part->outputs.resize(count);
  return true;
}

// NCCL refuses two ranks of a host on one GPU: "Duplicate GPU detected".
bool shares_a_device(const std::vector<Hello>& hellos, const Hello& last) {
  return std::any_of(hellos.begin(), hellos.end(), [&](const Hello& one) {
    return last.may_share == 0 && one.host == last.host && one.device == last.device;
  });
}

void serve(UniqueFd listener, const std::string& name) {
  std::vector<UniqueFd> ranks;
  std::vector<Hello> hellos;
  bool good = true;
  for (int32_t joined = 0, size = 1; joined < size; ++joined) {
    UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello{};
    if (!socket || !receive_all(socket.get(), &hello, sizeof hello)) return;
    size = hello.size;
    good = good && !shares_a_device(hellos, hello);
    hellos.push_back(hello);
    ranks.resize(static_cast<size_t>(size));
    ranks[static_cast<size_t>(hello.rank)] = std::move(socket);
  }
  for (const UniqueFd& rank : ranks) send_all(rank.get(), good ? "+" : "-", 1);
  while (good) {
    std::vector<Part> parts(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i)
      good = good && receive_part(ranks[i].get(), &parts[i]);
    if (good) compare_orders(parts, name);
    const bool agrees = good && run(parts);
    for (size_t i = 0; i < ranks.size(); ++i) {
      // '-': the ranks' calls differ; '!': a rank is lost.
      if (!send_all(ranks[i].get(), agrees ? "+" : good ? "-" : "!", 1) || !agrees) continue;
      for (const Bytes& output : parts[i].outputs) {
        const uint64_t size = output.size();
        send_all(ranks[i].get(), &size, sizeof size);
        send_all(ranks[i].get(), output.data(), size);
      }
    }
    good = agrees;
  }
  char byte = 0;
  for (const UniqueFd& rank : ranks) {
    while (waits_in_destroy() && receive_all(rank.get(), &byte, 1)) {
    }
  }
}

}  // namespace

bool waits_in_destroy() { return variable("HVD_DOUBLE_DESTROY_WAITS", 0) != 0; }

size_t width_of(int type) { return size_of(static_cast<hvd_dtype>(dtype_of(type))); }

int dtype_of(int type) {
  constexpr int kTypes[] = {HVD_INT8,   HVD_UINT8,   HVD_INT32,   HVD_UINT32,  HVD_INT64,
                            HVD_UINT64, HVD_FLOAT16, HVD_FLOAT32, HVD_FLOAT64, HVD_BFLOAT16};
  return kTypes[type];
}

std::string open_hub() {
  static std::atomic<int> number{0};
  const std::string name =
      "hvd-double-" + std::to_string(::getpid()) + "-" + std::to_string(number.fetch_add(1));
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 64) != 0) {
    return {};
  }
  std::thread(serve, std::move(listener), name).detach();
  return name;
}

bool send_all(int socket, const void* bytes, size_t size) {
  const char* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t sent = ::send(socket, from, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    from += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, void* bytes, size_t size) {
  char* to = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t got = ::recv(socket, to, size, 0);
    if (got <= 0) return false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace hvd::test_double
