// The code that --stage copies to each host: files, and directories with their contents except directories
// named .git, __pycache__, node_modules or .tox and environments of Python. StagedCode lists and hashes it
// once. StagedParts reads the bytes from disk anew for each host, at the speed of that host. HostJobs owns
// the list; Preflight reads the parts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

struct StagedCode {
  struct Entry {
    StageKind kind = StageKind::kFile;
    uint32_t mode = 0;
    std::string path;            // within the copy
    std::string link;            // the target of a symbolic link
    std::filesystem::path from;  // the source of a file
    uint64_t size = 0;           // bytes of a file; else 0
  };
  // A directory that is not copied.
  struct LeftOut {
    std::filesystem::path path;  // where it would lie in the copy
    std::filesystem::path from;
  };
  std::vector<Entry> entries;
  std::vector<LeftOut> left_out;
  std::vector<std::string>
      special;      // FIFOs, sockets and devices, which are not copied: paths within the copy
  Digest digest{};  // hash of all parts but the last one, which carries the hash
  std::string working_directory;  // where the ranks run: within the copy, or absolute
  std::string path;  // the staged directory, or the folder of the staged file, in the copy
};

// Reads the staged code in pieces, for one host. `code` must outlive this object.
class StagedParts {
 public:
  explicit StagedParts(const StagedCode& code) : code_(code) {}
  // Returns nullopt after the last part, which holds the digest.
  Result<std::optional<StagePart>> next();

 private:
  Result<std::optional<StagePart>> next_of_file(const StagedCode::Entry& entry);

  const StagedCode& code_;
  size_t index_ = 0;  // index of the entry that is sent now
  UniqueFd file_;
  uint64_t left_ = 0;  // bytes of file_ that are not sent yet
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
