// Finds folders of this host for files that ranks execute: the same folders, by the same rules, as place_agent.sh.
// Reads the file system and changes nothing, except that make_safe_folder() creates the folder.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/program/program.h"

namespace hvd::launcher {

// The candidates, the best first. `chosen`: the user's HOROVOD_AGENT_DIR, or empty. `agent`: the path of this
// program, whose folder comes before the others where the launcher has sent it. Folders may be missing.
std::vector<std::string> agent_folders(const std::string& chosen, const std::string& agent,
                                       const Environment& environment);
// The candidates for environments, which are large, on disks of this host. `chosen`: that of --stage-dir, which is the
// only one, or empty.
std::vector<std::string> environment_folders(const std::string& chosen,
                                             const Environment& environment);

// The path without symbolic links, if only this user and root can change the folder, or what is above it. An error
// says which part another user can change.
Result<std::string> safe_folder(const std::string& path);
// The same, and the folder is made where it is missing. Files in it can be loaded (no noexec), and it has room for so
// many bytes.
Result<std::string> make_safe_folder(const std::string& path, uint64_t bytes);

}  // namespace hvd::launcher
