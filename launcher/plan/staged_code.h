// The code that --stage copies to each host: files, and directories with their contents except Python environments and
// directories named .git, __pycache__, node_modules or .tox. Listed and hashed once. HostJobs owns the list.
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
    std::filesystem::path path;  // its path in the copy
    std::filesystem::path from;
  };
  std::vector<StagedEntry> entries;  // the last one is kEnd, with the digest of all previous parts
  std::vector<LeftOut> left_out;
  // FIFOs, sockets and devices, which are not copied: paths in the copy.
  std::vector<std::string> special;
  std::string working_directory;  // the ranks' directory: a path in the copy, or an absolute path
  std::string path;               // the staged directory, or the staged file's folder, in the copy
};

// Lists these files and directories. `directory`: the ranks' working directory without --stage. `is_chosen`: the user
// has named it. If a staged directory contains `directory`, the ranks run in the copy. Files in `directory` have the
// same relative path in the copy.
Result<std::shared_ptr<const StagedCode>> read_staged_code(
    const std::vector<std::filesystem::path>& paths, const std::filesystem::path& directory,
    bool is_chosen);

// Returns a sentence about uncopied files that no word of the command names; may be empty.
std::string describe_special(const StagedCode& code);

// Fails if a word of the command names a file that is not copied.
Status check_words(const StagedCode& code, const std::vector<std::string>& command);

}  // namespace hvd::launcher
