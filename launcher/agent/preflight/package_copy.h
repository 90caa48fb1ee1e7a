// The copy of the launcher's package horovod on this host: PARENT/horovod-package-NAME in the folder of the agent,
// where later jobs find it. Its name is the hash of the list of its files (package_list.h), and each file is compared
// with the list before each use. An incomplete copy never has that name. Holds a shared lock on the copy that it uses:
// nobody removes it while the job runs. Lives on the agent's thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/agent/ranks/rank_process.h"
#include "launcher/agent/ranks/staging.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

class PackageCopy {
 public:
  PackageCopy() = default;
  ~PackageCopy();
  PackageCopy(const PackageCopy&) = delete;

  // Looks for a whole copy in these folders (agent_folders), and locks it.
  bool find(const PackageOffer& offer, const std::vector<std::string>& folders);
  // Chooses the first folder that can keep a new copy, and expects its parts. An error says why none can.
  Status expect(const PackageOffer& offer, const std::vector<std::string>& folders);
  Status take(const StagePart& part);
  uint64_t taken() const { return parts_ ? parts_->taken() : 0; }
  // Whether a copy is expected whose last part has not come.
  bool is_incomplete() const { return parts_ && !parts_->is_whole(); }
  // After the last part: the command that unpacks it, or nothing where it is not packed. `python`: for a host without
  // gzip; may be empty.
  std::optional<RankCommand> unpacking(const std::string& python) const;
  // After that command: checks the files, gives the copy its name, and locks it.
  Status install();
  // The folder for PYTHONPATH, after find() or install().
  std::string python_folder() const;
  const std::string& folder() const { return path_; }

 private:
  Status unpack(const std::string& list) const;
  void use(const std::string& path, UniqueFd lock);

  std::string name_;
  std::string parent_;  // of the new copy
  std::optional<Staging> parts_;
  UniqueFd parts_lock_;
  std::string path_;
  UniqueFd lock_;
};

}  // namespace hvd::launcher
