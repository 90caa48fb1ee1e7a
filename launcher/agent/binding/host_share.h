// Divides this host among its ranks before they start: chooses their CPUs and the NUMA node of their memory by
// --bind-to (none: the agent's CPUs), and OMP_NUM_THREADS. Lives on the agent's loop.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "launcher/agent/binding/host_topology.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {

struct RankShare {
  Environment environment{};          // variables in addition to those of all ranks
  std::vector<unsigned long> cpus{};  // bit mask of its CPUs; empty: those of the agent
  std::vector<unsigned long>
      nodes{};  // bit of the NUMA node where memory is preferred; empty: the kernel's choice
};

struct HostShare {
  Status status{};
  std::vector<RankShare> ranks{};  // in the order of HostJob::ranks
  uint32_t threads = 0;            // OMP_NUM_THREADS where no rank is bound; 0: not set
  Environment facts{};  // facts about this host for the launcher, by the keys of host_job.h
  std::vector<std::vector<UniqueFd>>
      locks{};  // by rank: the sockets of reserve_core() for its cores
};

// `environment`: the variables of the ranks; `own`: those of the agent. The variables of `job` contain --bind-to and
// the related flags.
HostShare share_host(const HostJob& job, const Environment& environment, const Environment& own);

// Divides `cores` equally among the host's ranks: each rank that is not bound to CPUs gets its part as the number of
// its threads, at least 1. Does nothing if the host has one rank, or if is_thread_count_chosen().
void share_threads(const HostJob& job, const Environment& environment, double cores,
                   HostShare& share);

// Returns those of the host's GPUs that the ranks see, by the variables of Slurm and of the GPUs' drivers.
std::vector<Gpu> listed_gpus(const std::vector<Gpu>& gpus, const Environment& environment,
                             const Environment& own, bool is_nvidia);

// Returns whether `environment`, the environment of the ranks, already sets a number of threads, or the user disabled
// OMP_NUM_THREADS.
bool is_thread_count_chosen(const Environment& environment);

// Reserves a core for this process, against other processes of this user that call this function in the same network
// namespace. `cpu`: the core's first CPU. Returns false if another process has it. The kernel ends the reservation when
// the descriptor is closed, however the process ends. If the system refuses the socket, returns true without a
// reservation.
bool reserve_core(int cpu, std::vector<UniqueFd>& locks);

// Gives the calling process its share. Call it in a new process, before it executes a program. Does not allocate
// memory. Returns false, with errno, if the CPUs are no longer allowed.
bool apply_share(const RankShare& share);

}  // namespace hvd::launcher
