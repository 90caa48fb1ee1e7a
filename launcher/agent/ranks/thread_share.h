// Computes OMP_NUM_THREADS for ranks that share a host. Pure.
#pragma once

#include <cstdint>

#include "launcher/program/program.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

constexpr char kThreadsVariable[] = "OMP_NUM_THREADS";

// The cores of each rank, at least 1; 0 sets nothing: the host has one rank, `environment`, which is
// all that the ranks get, names a number already, or the user wants none.
uint32_t thread_share(const HostJob& job, const Environment& environment, double cores);

}  // namespace hvd::launcher
