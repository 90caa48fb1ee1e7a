#include "launcher/agent/binding/host_share.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "base/cores.h"
#include "base/proc_file.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/agent/binding/binding_plan.h"
#include "net/packet_socket.h"

namespace hvd::launcher {
namespace {

constexpr char kThreadsVariable[] = "OMP_NUM_THREADS";
// OpenBLAS and MKL read their own variable first, then OpenMP's variable.
constexpr std::array<std::string_view, 3> kChosenBy = {kThreadsVariable, "MKL_NUM_THREADS",
                                                       "OPENBLAS_NUM_THREADS"};
// Launchers that bind the processes that they start, and therefore need all CPUs of the host.
constexpr std::array<std::string_view, 5> kDividers = {
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed"};
constexpr size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;

// Returns whether the command starts one of kDividers. Words after a script or a module are that program's arguments.
bool starts_divider(const std::vector<std::string>& command) {
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (std::ranges::find(kDividers, word.substr(word.rfind('/') + 1)) != kDividers.end())
      return true;
    if (word.ends_with(".py") || (i > 0 && command[i - 1] == "-m")) return false;
  }
  return false;
}

std::vector<int> allowed_cpus() {
  constexpr int kMost = 8192;
  std::vector<int> cpus;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
      CPU_ALLOC(kMost), [](cpu_set_t* each) { CPU_FREE(each); });
  const size_t size = CPU_ALLOC_SIZE(kMost);
  CPU_ZERO_S(size, set.get());
  if (::sched_getaffinity(0, size, set.get()) != 0) return cpus;
  for (int cpu = 0; cpu < kMost; ++cpu) {
    if (CPU_ISSET_S(static_cast<size_t>(cpu), size, set.get())) cpus.push_back(cpu);
  }
  return cpus;
}

// The local ranks of an agent's ranks. An agent of an elastic job may start a few of its host's ranks.
struct LocalRanks {
  std::vector<size_t> numbers{};
  size_t all = 0;  // ranks of the host
};

LocalRanks local_ranks(const HostJob& job) {
  constexpr int64_t kMost = 8192;
  const auto number_of = [](const RankSpec& rank, const char* variable, size_t otherwise) {
    const auto number = parse_int(value_of(rank.environment, variable));
    return number && *number >= 0 && *number < kMost ? static_cast<size_t>(*number) : otherwise;
  };
  LocalRanks ranks{.all = job.ranks.size()};
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    ranks.numbers.push_back(number_of(job.ranks[i], "HOROVOD_LOCAL_RANK", i));
    ranks.all = std::max(
        {ranks.all, ranks.numbers.back() + 1, number_of(job.ranks[i], "HOROVOD_LOCAL_SIZE", 0)});
  }
  return ranks;
}

Environment facts_of(const HostJob& job, const Environment& own) {
  const auto visible =
      std::ranges::find(own, "CUDA_VISIBLE_DEVICES", &Environment::value_type::first);
  const int gpus = visible_gpus(
      count_gpus(), visible == own.end() ? std::nullopt : std::optional(visible->second));
  Environment facts{{kGpus, cat(gpus)}, {kCores, cat(available_cores())}};
  const int cores = affinity_cores();
  if (static_cast<size_t>(cores) < job.ranks.size() && cores < cpuset_cores())
    facts.emplace_back(kBinding, cat(cores, " of ", cpuset_cores()));
  return facts;
}

// NVIDIA's driver describes each GPU in a file: its UUID, and the number of its device file.
std::string driver_text(const Gpu& gpu) {
  return read_proc_file(cat("/proc/driver/nvidia/gpus/", gpu.address, "/information"));
}

// A container has the device files of its own GPUs only, but sees all PCI devices.
bool is_present(const Gpu& gpu) {
  const std::string text = driver_text(gpu);
  const size_t minor = text.find("Device Minor:");
  if (minor == std::string::npos) return true;
  const std::string rest = text.substr(text.find(':', minor) + 1);
  return ::access(cat("/dev/nvidia", trim(rest.substr(0, rest.find('\n')))).c_str(), F_OK) == 0;
}

// Returns the GPUs that a list such as "2,3" or "GPU-6f1b...,GPU-8d4c..." selects. The list ends at the first invalid
// item, as in the drivers.
std::vector<Gpu> selected(const std::vector<Gpu>& gpus, std::string_view list) {
  std::vector<Gpu> chosen;
  for (const std::string& each : split(list, ',')) {
    const std::string item(trim(each));
    const auto index = parse_int(item);
    const auto number = static_cast<size_t>(index.value_or(0));
    const auto named = index ? gpus.end() : std::ranges::find_if(gpus, [&](const Gpu& gpu) {
      return item.starts_with("GPU-") && driver_text(gpu).find(item) != std::string::npos;
    });
    if (index ? number >= gpus.size() : named == gpus.end()) break;
    chosen.push_back(index ? gpus[number] : *named);
  }
  return chosen;
}

std::vector<unsigned long> bits_of(const std::vector<int>& numbers) {
  std::vector<unsigned long> bits;
  for (const int number : numbers) {
    const auto at = static_cast<size_t>(number);
    if (at / kWordBits >= bits.size()) bits.resize(at / kWordBits + 1);
    bits[at / kWordBits] |= 1UL << (at % kWordBits);
  }
  return bits;
}

bool prefer_nodes(const std::vector<unsigned long>& nodes) {
  const int mode = nodes.empty() ? MPOL_DEFAULT : MPOL_PREFERRED;
  const unsigned long* const bits = nodes.empty() ? nullptr : nodes.data();
  return ::syscall(SYS_set_mempolicy, mode, bits, nodes.size() * kWordBits + 1) == 0;
}

// Returns whether the host has several nodes, and the kernel lets this process prefer one.
bool may_prefer_nodes(const HostTopology& topology, Environment& facts) {
  std::set<int> nodes;
  for (const Core& core : topology.cores) {
    if (core.node >= 0) nodes.insert(core.node);
  }
  if (nodes.size() < 2) return false;
  // Keep a memory policy that the user has set, for example by numactl.
  int mode = MPOL_DEFAULT;
  if (::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 && mode != MPOL_DEFAULT)
    return false;
  if (prefer_nodes(bits_of({*nodes.begin()}))) return prefer_nodes({});
  facts.emplace_back(kBindingRemark,
                     system_error("the kernel places the memory of bound ranks, because "
                                  "set_mempolicy fails; a container needs the "
                                  "capability SYS_NICE for it",
                                  errno)
                         .message());
  return false;
}

// Reserves the cores of the places. Adds cores that another process has reserved to `taken`; returns false if there are
// any.
bool reserve(const std::vector<RankCpus>& places, const LocalRanks& ranks,
             const HostTopology& topology, HostShare& share, std::set<int>& taken) {
  const size_t before = taken.size();
  for (size_t i = 0; i < ranks.numbers.size(); ++i) {
    for (const Core* core : cores_of(places[ranks.numbers[i]], topology)) {
      const int cpu = core->cpus.front();
      if (!reserve_core(cpu, share.locks[i])) taken.insert(cpu);
    }
  }
  return taken.size() == before;
}

// Plans cores that no other job has, and reserves them.
Result<std::vector<RankCpus>> reserve_cores(const BindingChoice& choice,
                                            const HostTopology& topology, const LocalRanks& ranks,
                                            HostShare& share) {
  if (available_cores() < 1) {
    return failed_precondition(
        cat("--bind-to core: the cgroup allows ", available_cores(),
            " of a core at a time, so a core for a rank would be idle; raise the quota (cpu.max), "
            "or leave the flag out"));
  }
  constexpr int kTries = 10;
  Excluded excluded;
  for (size_t rank = 0; rank < ranks.all; ++rank) excluded.ranks.insert(rank);
  for (const size_t own : ranks.numbers) excluded.ranks.erase(own);
  for (int tries = 0;;) {
    for (auto& locks : share.locks) locks.clear();
    auto places = plan_binding(choice, topology, ranks.all, excluded);
    if (places.ok()) {
      if (reserve(*places, ranks, topology, share, excluded.cores)) return places;
      continue;
    }
    if (excluded.cores.empty() || ++tries == kTries) return places;
    // Another job may be choosing its cores now, or ending. The wait depends on the pid, so that two jobs do not retry
    // together.
    excluded.cores.clear();
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + ::getpid() % 30));
  }
}

// Sets the CPUs of each rank in `share`, and the rank's line in `report`.
Status bind_ranks(const BindingChoice& choice, const LocalRanks& ranks,
                  const Environment& environment, const Environment& own, HostShare& share,
                  std::vector<std::string>& report) {
  auto found = read_host_topology(allowed_cpus());
  if (!found.ok() && choice.object == BindingObject::kAuto) {
    share.facts.emplace_back(kBindingRemark,
                             cat("--bind-to auto binds nothing: ", found.status().message()));
    return {};
  }
  HVD_ASSIGN_OR_RETURN(HostTopology topology, std::move(found));
  std::erase_if(topology.gpus, [](const Gpu& gpu) { return !is_present(gpu); });
  const bool is_nvidia =
      std::ranges::any_of(topology.gpus, [](const Gpu& gpu) { return !driver_text(gpu).empty(); });
  topology.gpus = listed_gpus(topology.gpus, environment, own, is_nvidia);
  HVD_ASSIGN_OR_RETURN(const std::vector<RankCpus> places,
                       choice.object == BindingObject::kCore
                           ? reserve_cores(choice, topology, ranks, share)
                           : plan_binding(choice, topology, ranks.all));
  const bool prefers = may_prefer_nodes(topology, share.facts);
  const std::vector<int> threads = cores_of_ranks(places, topology, available_cores());
  for (size_t i = 0; i < share.ranks.size(); ++i) {
    const RankCpus& place = places[ranks.numbers[i]];
    if (place.cpus.empty() && place.gpu < 0) continue;
    report[i] = describe(place, topology);
    if (place.cpus.empty()) continue;
    RankShare& rank = share.ranks[i];
    rank.cpus = bits_of(place.cpus);
    if (place.node >= 0 && prefers) rank.nodes = bits_of({place.node});
    rank.environment = {{"HOROVOD_BOUND_CPUS", cpu_list(place.cpus)}};
    if (place.node >= 0) rank.environment.emplace_back("HOROVOD_NUMA_NODE", cat(place.node));
    if (is_thread_count_chosen(environment)) continue;
    const std::string number = cat(threads[ranks.numbers[i]]);
    rank.environment.emplace_back(kThreadsVariable, number);
    report[i] += cat(", ", kThreadsVariable, "=", number);
  }
  return {};
}

}  // namespace

bool is_thread_count_chosen(const Environment& environment) {
  if (value_of(environment, "HOROVOD_OMP_DEFAULT") == "0") return true;
  return std::ranges::any_of(environment, [](const auto& variable) {
    return std::ranges::find(kChosenBy, variable.first) != kChosenBy.end();
  });
}

void share_threads(const HostJob& job, const Environment& environment, double cores,
                   HostShare& share) {
  if (job.ranks.size() < 2 || is_thread_count_chosen(environment)) return;
  const auto threads =
      std::max(1U, static_cast<uint32_t>(cores / static_cast<double>(job.ranks.size())));
  bool is_any_bound = false;
  for (RankShare& rank : share.ranks) {
    is_any_bound |= !rank.cpus.empty();
    if (rank.cpus.empty()) rank.environment.emplace_back(kThreadsVariable, cat(threads));
  }
  if (!is_any_bound) share.threads = threads;
}

std::vector<Gpu> listed_gpus(const std::vector<Gpu>& gpus, const Environment& environment,
                             const Environment& own, bool is_nvidia) {
  const char* const first = is_nvidia ? "CUDA_VISIBLE_DEVICES" : "ROCR_VISIBLE_DEVICES";
  const std::string_view list = value_of(environment, first);
  std::string_view of_job = value_of(own, "SLURM_JOB_GPUS");
  if (of_job.empty()) of_job = value_of(own, "SLURM_STEP_GPUS");
  // If Slurm hides the host's other GPUs from the job, the drivers number only the job's GPUs. Otherwise, the numbers
  // are those of the host.
  std::vector<Gpu> listed = gpus;
  if (!of_job.empty() && of_job != list) {
    listed = selected(gpus, of_job);
    if (!list.empty() && selected(listed, list).empty()) listed = gpus;
  }
  if (!list.empty()) listed = selected(listed, list);
  if (is_nvidia) return listed;
  // AMD's HIP numbers only the GPUs that ROCR, the layer below it, shows. HIP reads CUDA's variable if its own is
  // unset.
  std::string_view of_hip = value_of(environment, "HIP_VISIBLE_DEVICES");
  if (of_hip.empty()) of_hip = value_of(environment, "CUDA_VISIBLE_DEVICES");
  return of_hip.empty() ? listed : selected(listed, of_hip);
}

bool reserve_core(int cpu, std::vector<UniqueFd>& locks) {
  // Use an abstract socket, not a file: a Slurm job or a container may have its own /dev/shm and /tmp, and a socket
  // leaves no file behind.
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  socklen_t size = 0;
  const sockaddr_un name =
      net::abstract_address(cat("horovodrun-core-", ::getuid(), "-", cpu), size);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0)
    return errno != EADDRINUSE;
  locks.push_back(std::move(socket));
  return true;
}

HostShare share_host(const HostJob& job, const Environment& environment, const Environment& own) {
  HostShare share;
  share.ranks.resize(job.ranks.size());
  share.locks.resize(job.ranks.size());
  share.facts = facts_of(job, own);
  const auto choice = parse_binding([&](std::string_view key) {
    return std::string(value_of(job.environment, setting(key).variable));
  });
  const LocalRanks ranks = local_ranks(job);
  const bool is_wanted = choice.ok() && choice->object != BindingObject::kNone;
  std::vector<std::string> report;
  const bool is_reported = value_of(job.environment, setting("report_bindings").variable) == "1";
  if (is_wanted || is_reported)
    report.resize(job.ranks.size(), cat("not bound, cpus ", cpu_list(allowed_cpus())));
  if (!choice.ok()) {
    share.status = choice.status();
  } else if (is_wanted && ranks.all == 1 && starts_divider(job.command)) {
    share.facts.emplace_back(kBindingRemark,
                             cat("'", printable(job.command[0]),
                                 "' is not bound, because it binds the processes that it starts"));
  } else if (is_wanted) {
    share.status = bind_ranks(*choice, ranks, environment, own, share, report);
  }
  if (is_reported) share.facts.emplace_back(kBindings, join(report, "\n"));
  share_threads(job, environment, available_cores(), share);
  return share;
}

bool apply_share(const RankShare& share) {
  if (!share.cpus.empty() &&
      ::sched_setaffinity(0, share.cpus.size() * sizeof(unsigned long),
                          reinterpret_cast<const cpu_set_t*>(share.cpus.data())) != 0)
    return false;
  if (!share.nodes.empty()) prefer_nodes(share.nodes);
  return true;
}

}  // namespace hvd::launcher
