// The bootstrap under a foreign launcher (srun, mpirun, mpiexec.hydra). A bootstrap plugin provides
// this process's rank, and sends the address of the job's store, which rank 0 serves, to all ranks.
// The bootstrap in identity.h calls it. Blocks until all ranks have the address.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "plugin/catalogue.h"
#include "runtime/bootstrap/identity.h"
#include "runtime/bootstrap/served_store.h"
#include "runtime/settings/worker_settings.h"

namespace hvd::runtime {

// The result of a bootstrap, saved for the next start of this process, whose ranks find each other at
// the same endpoint. The launcher is not asked twice: Open MPI 4.1's servers lose fences of ranks on
// several hosts that have started PMIx once more.
struct SavedBootstrap {
  Identity identity;
  Invitation master;                    // rank 0's endpoint and secret
  std::unique_ptr<ServedStore> server;  // at rank 0
  std::map<std::string, void*> published;
};

// Returns nothing when no bootstrap plugin that can be opened knows the launcher of this process.
// Looks for plugins only where a foreign launcher may have started the process. `epoch` counts its
// starts; `before` is what an earlier start saved, or nullptr.
Result<std::optional<Bootstrap>> bootstrap_by_foreign_launcher(
    const WorkerSettings& settings, Deadline deadline, uint64_t epoch,
    const std::shared_ptr<const SavedBootstrap>& before);

// The bootstrap plugins that there are.
plugin::Catalogue installed_bootstraps(const WorkerSettings& settings);

}  // namespace hvd::runtime
