// The code that --stage copies to each host: files, and directories with their contents except directories
// named .git, __pycache__, node_modules or .tox and environments of Python. StagedCode lists and hashes it
// once. HostJobs owns the list; Preflight reads the parts (StagedParts).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/protocol/staged_parts.h"

namespace hvd::launcher {

struct StagedCode {
  // A directory that is not copied.
  struct LeftOut {
    std::filesystem::path path;  // where it would lie in the copy
    std::filesystem::path from;
  };
  std::vector<StagedEntry>
      entries;  // the last one is kEnd, which carries the digest of all parts before
  std::vector<LeftOut> left_out;
  std::vector<std::string>
      special;  // FIFOs, sockets and devices, which are not copied: paths within the copy
  std::string working_directory;  // where the ranks run: within the copy, or absolute
  std::string path;  // the staged directory, or the folder of the staged file, in the copy
};

// Lists these files and directories. `directory`: the ranks' working directory without --stage;
// `is_chosen`: the user has named it. If `directory` lies in a staged directory, the ranks run in the
// copy. Files in `directory` are at the same relative path in the copy.
Result<std::shared_ptr<const StagedCode>> read_staged_code(
    const std::vector<std::filesystem::path>& paths, const std::filesystem::path& directory,
    bool is_chosen);

// A sentence about files that are not copied and that no command word names; or empty.
std::string describe_special(const StagedCode& code);

// Fails if a word of the command names a file that is not copied.
Status check_words(const StagedCode& code, const std::vector<std::string>& command);

}  // namespace hvd::launcher
