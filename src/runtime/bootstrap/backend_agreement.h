// Compares the selected backends of all ranks, and the flags that all need alike, before any rank opens a
// backend: ranks that differ would wait for each other forever. The start of the runtime calls it once.
// Blocks until all ranks have answered.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/bootstrap/identity.h"
#include "runtime/plugins/plugin_host.h"

namespace hvd::runtime {

// own: BackendSelection::words of this rank, or what keeps it from that. Not ok, on every rank, where
// ranks differ or one of them has trouble: the sentence says which. Returns whether all ranks open the
// backend for devices that trials choose: each has its file, and one has a GPU. is_watched: a launcher names the ranks
// that do not come; else the lowest rank that has come does, once. ranks: RuntimeOptions::ranks.
Result<bool> agree_on_backends(const PluginHost& host, const Identity& identity,
                               const Result<std::string>& own, Deadline deadline, bool is_watched,
                               std::span<const int32_t> ranks);

// The same for what all ranks have sent, by rank: '+' and the words, or '-' and what keeps it. Pure.
Result<bool> compare_backends(const std::vector<std::string>& records);

}  // namespace hvd::runtime
