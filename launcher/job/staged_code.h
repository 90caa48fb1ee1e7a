// What --stage sends to each host: a file, or a directory with all in it but .git and __pycache__.
// Listed and hashed once; its bytes are read from disk for each host, as fast as that takes them.
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
    std::string link;            // where a link leads
    std::filesystem::path from;  // of a file
    uint64_t size = 0;           // of a file, in bytes
  };
  std::vector<Entry> entries;
  Digest digest{};                // of all parts but the one that tells it
  std::string working_directory;  // of the ranks, within the copy, or absolute
  std::string path;               // of the copy of what was named, or of its folder, within it
};

// All of it in pieces, for one host. `code` must outlive this.
class StagedParts {
 public:
  explicit StagedParts(const StagedCode& code) : code_(code) {}
  // None behind the last one, which holds the digest.
  Result<std::optional<StagePart>> next();

 private:
  Result<std::optional<StagePart>> next_of_file(const StagedCode::Entry& entry);

  const StagedCode& code_;
  size_t index_ = 0;  // of the entry
  UniqueFd file_;
  uint64_t left_ = 0;  // of the file
};

// `directory`: where the ranks would run without --stage; `is_chosen`: the user has named it. Below
// a staged directory the ranks run in its copy; what is staged from below it lies at the same place.
Result<std::shared_ptr<const StagedCode>> read_staged_code(const std::filesystem::path& what,
                                                           const std::filesystem::path& directory,
                                                           bool is_chosen);

}  // namespace hvd::launcher
