// Computes OMP_NUM_THREADS for ranks that share a host. Pure.
#pragma once

#include <cstdint>

#include "launcher/protocol/host_job.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {

constexpr char kThreadsVariable[] = "OMP_NUM_THREADS";

// Returns the cores of each rank, at least 1. Returns 0, which sets no variable, if the host has
// one rank, if `environment`, the environment of the ranks, already sets a number, or if the
// user disabled it.
uint32_t thread_share(const HostJob& job, const Environment& environment, double cores);

}  // namespace hvd::launcher
