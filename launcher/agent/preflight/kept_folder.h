// A folder of files that a launcher sends once, and that later jobs of this user on this host reuse. The folder is
// created under another name, and renamed when complete. While this object lives, it holds a shared lock on the folder,
// which prevents its removal or replacement. One thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/agent/ranks/staging.h"

namespace hvd::launcher {

class KeptFolder {
 public:
  using IsWhole = std::function<bool(const std::string& path)>;

  // `prefix`, `unfinished`: prefixes of complete and incomplete folders. `advice`: ends the error of a failed write.
  KeptFolder(std::string_view prefix, std::string_view unfinished, const char* advice)
      : prefix_(prefix), unfinished_(unfinished), advice_(advice) {}
  ~KeptFolder();
  KeptFolder(const KeptFolder&) = delete;

  // Searches these folders (safe_folder.h) for a complete folder with that name, and locks it.
  bool find(const std::string& name, const std::vector<std::string>& folders,
            const IsWhole& is_whole);
  // Call after find(). Chooses the first of these folders with `bytes` bytes of free space in which no job uses a
  // folder of this name, and expects parts. The error contains the reason for each folder.
  Status expect(const std::string& name, const std::vector<std::string>& folders, uint64_t bytes);
  Status take(const StagePart& part);
  // See Staging::write().
  Status write(const StagePart& part);
  uint64_t taken() const { return parts_ ? parts_->taken() : 0; }
  // Returns whether parts of an expected folder are missing.
  bool is_incomplete() const { return parts_ && !parts_->is_whole(); }
  const std::string& parts() const { return parts_->directory(); }
  // Returns the path that the folder has, or will have.
  const std::string& path() const { return path_; }
  // Renames `files`, a folder among the parts, to path(), and locks it. If another agent has meanwhile created a
  // complete folder of that name, uses that folder. Replaces a damaged folder of that name, unless a job uses
  // it.
  Status keep(const std::string& files, const IsWhole& is_whole);
  // Returns whether parts remain; remove_parts() removes them.
  bool has_parts() const { return parts_.has_value(); }
  void remove_parts();

 private:
  void use(UniqueFd lock);

  const std::string_view prefix_, unfinished_;
  const char* const advice_;
  std::optional<Staging> parts_;
  UniqueFd parts_lock_;
  std::string path_;
  UniqueFd lock_;
};

}  // namespace hvd::launcher
