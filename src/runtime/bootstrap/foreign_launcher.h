// The bootstrap under a foreign launcher (srun, mpirun, mpiexec.hydra). A bootstrap plugin provides
// this process's rank, and sends the address of the job's store, which the first rank serves, to all ranks
// that start together. The bootstrap in identity.h calls it. Blocks until they have the address.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plugin/catalogue.h"
#include "runtime/bootstrap/identity.h"
#include "runtime/bootstrap/served_store.h"
#include "runtime/settings/worker_settings.h"

namespace hvd::runtime {

// Results of this process's starts for the next ones. Ranks that have met find each other at the same
// endpoint again. The launcher is opened once: Open MPI 4.1's servers lose fences of ranks on several hosts
// that have started PMIx once more.
struct SavedBootstrap {
  Identity identity;
  std::map<std::string, void*> published;
  // Endpoint and secret of the first rank, by the list of ranks that have met; empty: all.
  std::map<std::vector<int32_t>, Invitation> masters;
  // At the first rank of a list, and its own invitation.
  std::unique_ptr<ServedStore> server;
  std::string own;
  // With the launcher, while only lists of ranks have started.
  std::shared_ptr<void> session;
};

// Returns nothing when no bootstrap plugin that can be opened knows the launcher of this process.
// Looks for plugins only where a foreign launcher may have started the process.
Result<std::optional<Bootstrap>> bootstrap_by_foreign_launcher(const WorkerSettings& settings,
                                                               Deadline deadline,
                                                               const BootstrapStart& start,
                                                               SavedBootstrap* saved);

// The bootstrap plugins that there are.
plugin::Catalogue installed_bootstraps(const WorkerSettings& settings);

}  // namespace hvd::runtime
