// What --stage sends to each host, read once: a file, or a directory with all in it but .git and
// __pycache__.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/agent/protocol.h"

namespace hvd::launcher {

struct StagedCode {
  std::vector<StagePart> parts;
  std::string working_directory;  // of the ranks, within the copy, or absolute
  std::string path;               // of the copy of what was named, or of its folder, within it
};

// `directory`: where the ranks would run without --stage; `is_chosen`: the user has named it. Below
// a staged directory the ranks run in its copy; what is staged from below it lies at the same place.
Result<std::shared_ptr<const StagedCode>> read_staged_code(const std::filesystem::path& what,
                                                           const std::filesystem::path& directory,
                                                           bool is_chosen);

}  // namespace hvd::launcher
