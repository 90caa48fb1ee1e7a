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

  // `prefix`: of the names of such folders. `advice`: for an error about a file that cannot be written.
  KeptFolder(std::string_view prefix, std::string_view unfinished, const char* advice)
      : prefix_(prefix), unfinished_(unfinished), advice_(advice) {}
  ~KeptFolder();
  KeptFolder(const KeptFolder&) = delete;

  // Looks for a whole folder of that name in these folders (safe_folder.h), and locks it.
  bool find(const std::string& name, const std::vector<std::string>& folders,
            const IsWhole& is_whole);
  // After find(): chooses the first of these folders that has room for so many bytes and no folder of that name that a
  // job uses, and expects parts. An error says for each why it cannot.
  Status expect(const std::string& name, const std::vector<std::string>& folders, uint64_t bytes);
  Status take(const StagePart& part);
  // As Staging::write.
  Status write(const StagePart& part);
  uint64_t taken() const { return parts_ ? parts_->taken() : 0; }
  // Whether a folder is expected whose last part has not come.
  bool is_incomplete() const { return parts_ && !parts_->is_whole(); }
  // The folder of the parts.
  const std::string& parts() const { return parts_->directory(); }
  // The path that the folder gets, or has.
  const std::string& path() const { return path_; }
  // Gives this folder among the parts its name, and locks it. A whole folder of that name, which another agent has made
  // meanwhile, is used instead; a damaged one is replaced, unless a job uses
  // it.
  Status keep(const std::string& files, const IsWhole& is_whole);
  // Whether there are other parts; removes them.
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
