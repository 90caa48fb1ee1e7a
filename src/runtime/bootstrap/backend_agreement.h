// Compares the selected backends of all ranks before any rank opens one: ranks with different backends
// would wait for each other forever. The start of the runtime calls it once. Blocks until all ranks
// have answered.
#pragma once

#include <string>

#include "runtime/bootstrap/identity.h"
#include "runtime/plugins/plugin_host.h"

namespace hvd::runtime {

// own: what this rank has chosen, in words, or what keeps it from that. Not ok, on every rank, where
// ranks differ or one of them has trouble: the sentence says which.
Status agree_on_backends(const PluginHost& host, const Identity& identity,
                         const Result<std::string>& own, Deadline deadline);

}  // namespace hvd::runtime
