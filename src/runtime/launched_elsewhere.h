// Who this rank is, where somebody else's launcher started it (srun, mpirun, mpiexec.hydra): a
// bootstrap plugin knows, and carries to all ranks where rank 0 serves the store of the job.
#pragma once

#include <optional>

#include "base/settings.h"
#include "plugin/catalogue.h"
#include "runtime/identity.h"

namespace hvd::runtime {

// Nothing where none of the plugins that can be opened started this process. Looks for plugins only
// where variables of other launchers are set. `epoch` counts this process's starts.
Result<std::optional<Bootstrap>> launched_elsewhere(const Settings& settings, Deadline deadline,
                                                    uint64_t epoch);

// The bootstrap plugins that there are.
plugin::Catalogue installed_bootstraps(const Settings& settings);

}  // namespace hvd::runtime
