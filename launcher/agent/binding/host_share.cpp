#include "launcher/agent/binding/host_share.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <optional>
#include <set>
#include <string_view>
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
// Launchers that bind the processes that they start: one of them on a host needs all CPUs of the host.
constexpr std::array<std::string_view, 5> kDividers = {
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed"};
constexpr size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;

bool starts_divider(const std::vector<std::string>& command) {
  return std::ranges::any_of(command, [](const std::string& word) {
    return std::ranges::find(kDividers, word.substr(word.rfind('/') + 1)) != kDividers.end();
  });
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
  for (const std::string& item : split(list, ',')) {
    const auto index = parse_int(trim(item));
    const auto number = static_cast<size_t>(index.value_or(0));
    const auto named = index ? gpus.end() : std::ranges::find_if(gpus, [&](const Gpu& gpu) {
      return item.starts_with("GPU-") && driver_text(gpu).find(item) != std::string::npos;
    });
    if (index ? number >= gpus.size() : named == gpus.end()) break;
    chosen.push_back(index ? gpus[number] : *named);
  }
  return chosen;
}

// Slurm's limits hide the other GPUs of the host from its job: CUDA_VISIBLE_DEVICES then counts those of the job alone.
void keep_visible(std::vector<Gpu>& gpus, const Environment& environment, const Environment& own) {
  std::erase_if(gpus, [](const Gpu& gpu) { return !is_present(gpu); });
  const std::string_view cuda = value_of(environment, "CUDA_VISIBLE_DEVICES");
  for (const char* variable : {"SLURM_JOB_GPUS", "SLURM_STEP_GPUS"}) {
    const std::string_view of_job = value_of(own, variable);
    if (of_job.empty() || of_job == cuda) continue;
    gpus = selected(gpus, of_job);
    break;
  }
  for (const char* variable :
       {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}) {
    const std::string_view list = value_of(environment, variable);
    if (!list.empty()) gpus = selected(gpus, list);
  }
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
  const int first = topology.cores.front().node;
  const auto is_other = [&](const Core& core) { return core.node != first; };
  if (std::ranges::none_of(topology.cores, is_other)) return false;
  if (prefer_nodes(bits_of({first}))) return prefer_nodes({});
  facts.emplace_back(kBindingRemark,
                     system_error("the kernel places the memory of bound ranks, because "
                                  "set_mempolicy fails; a container needs the "
                                  "capability SYS_NICE for it",
                                  errno)
                         .message());
  return false;
}

// Plans cores that no other job has, and reserves them.
Result<std::vector<RankCpus>> reserve_cores(const BindingChoice& choice,
                                            const HostTopology& topology, HostShare& share) {
  if (available_cores() < 1) {
    return failed_precondition(
        cat("--bind-to core: the cgroup allows ", available_cores(),
            " of a core at a time, so a core for a rank would be idle; raise the quota (cpu.max), "
            "or leave the flag out"));
  }
  std::set<int> taken;
  for (;;) {
    share.locks.clear();
    HVD_ASSIGN_OR_RETURN(std::vector<RankCpus> places,
                         plan_binding(choice, topology, share.ranks.size(), taken));
    const size_t before = taken.size();
    for (const RankCpus& place : places) {
      for (const Core* core : cores_of(place, topology)) {
        UniqueFd lock = reserve_core(core->cpus.front());
        if (lock)
          share.locks.push_back(std::move(lock));
        else
          taken.insert(core->cpus.front());
      }
    }
    if (taken.size() == before) return places;
  }
}

// Also replaces the lines of `report`, one for each rank.
Status bind_ranks(const BindingChoice& choice, const Environment& environment,
                  const Environment& own, HostShare& share, std::vector<std::string>& report) {
  HVD_ASSIGN_OR_RETURN(HostTopology topology, read_host_topology());
  keep_visible(topology.gpus, environment, own);
  HVD_ASSIGN_OR_RETURN(const std::vector<RankCpus> places,
                       choice.object == BindingObject::kCore
                           ? reserve_cores(choice, topology, share)
                           : plan_binding(choice, topology, share.ranks.size()));
  const bool prefers = may_prefer_nodes(topology, share.facts);
  const std::vector<int> threads = cores_of_ranks(places, topology, available_cores());
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& [cpus, node, gpu] = places[i];
    if (cpus.empty() && gpu < 0) continue;
    report[i] = describe(places[i], topology);
    if (cpus.empty()) continue;
    RankShare& rank = share.ranks[i];
    rank.cpus = bits_of(cpus);
    if (node >= 0 && prefers) rank.nodes = bits_of({node});
    rank.environment = {{"HOROVOD_BOUND_CPUS", cpu_list(cpus)}};
    if (node >= 0) rank.environment.emplace_back("HOROVOD_NUMA_NODE", cat(node));
    if (is_thread_count_chosen(environment)) continue;
    rank.environment.emplace_back(kThreadsVariable, cat(threads[i]));
    report[i] += cat(", ", kThreadsVariable, "=", threads[i]);
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

uint32_t thread_share(const HostJob& job, const Environment& environment, double cores) {
  if (job.ranks.size() < 2 || is_thread_count_chosen(environment)) return 0;
  return std::max<uint32_t>(1,
                            static_cast<uint32_t>(cores / static_cast<double>(job.ranks.size())));
}

UniqueFd reserve_core(int cpu) {
  // Not a file: a job of Slurm or a container may have a /dev/shm and a /tmp of its own, and a file would remain.
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  socklen_t size = 0;
  const sockaddr_un name =
      net::abstract_address(cat("horovodrun-core-", ::getuid(), "-", cpu), size);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0) socket.reset();
  return socket;
}

HostShare share_host(const HostJob& job, const Environment& environment, const Environment& own) {
  HostShare share;
  share.ranks.resize(job.ranks.size());
  share.facts = facts_of(job, own);
  const auto choice = parse_binding([&](std::string_view key) {
    return std::string(value_of(environment, setting(key).variable));
  });
  const bool is_wanted = choice.ok() && choice->object != BindingObject::kNone;
  std::vector<std::string> report;
  if (is_wanted || value_of(environment, setting("report_bindings").variable) == "1")
    report.resize(job.ranks.size(), cat("not bound, cpus ", cpu_list(allowed_cpus())));
  if (!choice.ok()) {
    share.status = choice.status();
  } else if (is_wanted && job.ranks.size() == 1 && starts_divider(job.command)) {
    share.facts.emplace_back(kBindingRemark,
                             cat("'", printable(job.command[0]),
                                 "' is not bound, because it binds the processes that it starts"));
  } else if (is_wanted) {
    share.status = bind_ranks(*choice, environment, own, share, report);
  }
  if (value_of(environment, setting("report_bindings").variable) == "1")
    share.facts.emplace_back(kBindings, join(report, "\n"));
  const auto is_bound = [](const RankShare& rank) { return !rank.cpus.empty(); };
  if (std::ranges::any_of(share.ranks, is_bound)) return share;
  share.threads = thread_share(job, environment, available_cores());
  for (RankShare& rank : share.ranks) {
    if (share.threads != 0) rank.environment.emplace_back(kThreadsVariable, cat(share.threads));
  }
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
