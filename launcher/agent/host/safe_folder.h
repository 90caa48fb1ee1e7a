// Finds folders of this host for files that ranks execute: the same folders as place_agent.sh, by the same rules. Reads
// the file system and changes nothing, except that make_safe_folder() creates the folder.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {

// Returns the candidates, best first. `chosen`: the user's HOROVOD_AGENT_DIR, or empty. `agent`: the path of this
// program; its folder comes next if the launcher has sent the program. Folders may not exist.
std::vector<std::string> agent_folders(const std::string& chosen, const std::string& agent,
                                       const Environment& environment);
// Returns the candidates for environments, which are large, on disks of this host. `chosen`: the folder of --stage-dir,
// which is then the only candidate, or empty.
std::vector<std::string> environment_folders(const std::string& chosen,
                                             const Environment& environment);

// Returns the path without symbolic links if only this user and root can change the folder and its parent folders. The
// error names the part that another user can change.
Result<std::string> safe_folder(const std::string& path);
// Like safe_folder(), but creates a missing folder. Also checks that files in the folder can be loaded (no noexec), and
// that it has `bytes` bytes of free space.
Result<std::string> make_safe_folder(const std::string& path, uint64_t bytes);

}  // namespace hvd::launcher
