// Removes leftovers of this user's jobs on this host: folders of jobs whose processes were all killed at once, and
// agents and packages of other versions that no job has used for 30 days. Ignores errors, because the next job tries
// again.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::launcher {

// Holds a shared lock on the folder as long as the descriptor, or a copy in another process, is open. Empty on
// failure. A process id would prove nothing: containers that share /dev/shm number their processes alone.
UniqueFd lock_folder(const std::string& path);
// Takes an exclusive lock on the folder until the descriptor is closed, where the file system has locks and the folder
// exists. An error: a process holds a lock.
Result<UniqueFd> lock_unused_folder(const std::string& path);
// Removes this user's folders `parent`/`prefix`... that no process has locked and that are a minute old.
void remove_unlocked_folders(const std::string& parent, std::string_view prefix);
// Records in the folder of a package, PARENT/PREFIX..., that a job uses it now, and removes this user's other folders
// of that prefix beside it that nobody has locked and no job has used for 30 days.
void remove_unused_packages(const std::string& path, std::string_view prefix);
// Records in the agent's file that a job has started it now, and removes agents of other versions beside it that
// no job has started for 30 days. Machines of other kinds may share the folder. `path`: of a file
// horovod-agent-HASH; else nothing happens.
void remove_unused_agents(const std::string& path);

}  // namespace hvd::launcher
