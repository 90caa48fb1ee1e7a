// Compares the selected backends of all ranks, and the flags that must be equal, before any rank opens a backend: ranks
// with different backends would wait for each other forever. Blocks until all ranks have sent their selections, or
// until the deadline.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/bootstrap/identity.h"
#include "runtime/plugins/plugin_host.h"

namespace hvd::runtime {

// Compares the selected backends of all ranks. `own`: BackendSelection::words of this rank, or the error if this rank
// cannot load its backends. If selections differ or a rank has an error, returns on every rank an error that names a
// rank. Returns true if all ranks open the device backend that trials select: each rank has the backend's file, and at
// least one rank has a GPU. `is_watched`: a launcher names late ranks; otherwise the lowest rank that has arrived names
// them, once. `ranks`: RuntimeOptions::ranks.
Result<bool> agree_on_backends(const PluginHost& host, const Identity& identity,
                               const Result<std::string>& own, Deadline deadline, bool is_watched,
                               std::span<const int32_t> ranks);

// Compares the ranks' records, one for each rank, in the order of ranks. A record is '+' and BackendSelection::words,
// or '-' and the reason why the rank cannot load its backends. Pure.
Result<bool> compare_backends(const std::vector<std::string>& records);

}  // namespace hvd::runtime
