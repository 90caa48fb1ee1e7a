// The bootstrap under a foreign launcher (srun, mpirun, mpiexec.hydra). A bootstrap plugin provides
// this process's rank, and sends the address of the job's store to all ranks that start together.
// The first rank serves the store. Blocks until this rank has the address.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugin/catalogue.h"
#include "runtime/bootstrap/identity.h"
#include "runtime/bootstrap/served_store.h"
#include "runtime/settings/worker_settings.h"

namespace hvd::runtime {

// The results of this process's starts, for later starts. Ranks that started together find each other
// again at the same endpoint. The launcher's interface is opened only once: if ranks on several hosts
// initialise PMIx again, servers of Open MPI 4.1 lose fences.
struct SavedBootstrap {
  Identity identity;
  std::map<std::string, void*> published;
  // Endpoint and secret of the first rank, by the list of ranks that started together (empty: all ranks).
  std::map<std::vector<int32_t>, Invitation> masters;
  // The store that this process serves as the first rank, and its invitation.
  std::unique_ptr<ServedStore> server;
  std::string own;
  // The session with the launcher, kept here if only lists of ranks have started.
  std::shared_ptr<void> session;
};

// Returns nullopt if no plugin recognises this process, and an error if the process is one of
// several but no plugin finds the others. Looks for plugins only if a foreign launcher may have
// started the process.
Result<std::optional<Bootstrap>> bootstrap_by_foreign_launcher(const WorkerSettings& settings,
                                                               Deadline deadline,
                                                               const BootstrapStart& start,
                                                               SavedBootstrap* saved);

plugin::Catalogue installed_bootstraps(const WorkerSettings& settings);

}  // namespace hvd::runtime
