// The directory of a user's spools, and the right to read and remove one. Owns no descriptor that it
// returns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/state/state_folder.h"

namespace hvd::launcher {

// The file of a spool that tells whether its job has ended; the launcher locks it while it runs.
constexpr char kStateFile[] = "state";

// "/tmp/horovodrun-1000" in "/tmp".
std::string spool_folder_path(const std::string& parent);
// Opens the directory; `makes`: makes it where there is none. Refuses a directory that another user owns or can enter.
// kNotFound when there is none.
Result<UniqueFd> open_spool_folder(const std::string& parent, bool makes);
// The process ids of the launchers whose spools are there.
std::vector<std::string> spool_names(const UniqueFd& folder);

// When something in it last changed, in nanoseconds since 1970.
int64_t last_change(const UniqueFd& spool);
// Whether the launcher of this spool still runs.
bool is_spool_in_use(const UniqueFd& spool);
// Removes the spool of a job that has ended, unless another process reads it. `spool` must hold no
// lock that others share: the caller's shared lock ends.
void remove_spool(const std::string& parent, const std::string& name, const UniqueFd& spool);
// Removes the spools of jobs that ended a week ago.
void remove_old_spools(const std::string& parent);

}  // namespace hvd::launcher
