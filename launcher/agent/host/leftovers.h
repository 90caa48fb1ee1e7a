// Removes leftovers of this user's jobs on this host: folders of jobs whose processes were all killed at once, and
// agents and packages of other versions that no job has used for 30 days. Ignores errors, because the next job tries
// again.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::launcher {

// Holds a shared lock on the folder until the descriptor and all its copies in other processes are closed. Returns a
// closed descriptor on failure. A process id in the folder's name would not suffice: containers that share /dev/shm
// number their processes separately.
UniqueFd lock_folder(const std::string& path);
// Takes an exclusive lock on the folder until the descriptor is closed, if the file system has locks and the folder
// exists. Returns an error if a process holds a lock.
Result<UniqueFd> lock_unused_folder(const std::string& path);
// Removes this user's folders `parent`/`prefix`... that are not locked and are at least a minute old.
void remove_unlocked_folders(const std::string& parent, std::string_view prefix);
// Records in the folder of a package, PARENT/PREFIX..., that a job uses it now. Removes this user's other folders
// with that prefix in PARENT that are not locked and that no job has used for 30 days.
void remove_unused_packages(const std::string& path, std::string_view prefix);
// Records in the agent's file that a job has started it now. Removes agents of other versions in the same folder that
// no job has started for 30 days, whatever machine they are for: different machines may share the folder. Does nothing
// if `path` does not name a file horovod-agent-HASH.
void remove_unused_agents(const std::string& path);

}  // namespace hvd::launcher
