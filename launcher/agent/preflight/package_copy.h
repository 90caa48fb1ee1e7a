// The copy of the launcher's package horovod on this host: PARENT/horovod-package-NAME in the folder of the agent,
// where later jobs find it. Its name is the hash of the list of its files (package_list.h), and each file is compared
// with the list before each use. An incomplete copy never has that name. Holds a shared lock on the copy in use, which
// prevents its removal while the job runs. Lives on the agent's thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/preflight/kept_folder.h"
#include "launcher/agent/ranks/rank_process.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

class PackageCopy {
 public:
  PackageCopy();

  // Looks for a whole copy in these folders (agent_folders), and locks it.
  bool find(const PackageOffer& offer, const std::vector<std::string>& folders);
  // Chooses the first folder that can keep a new copy, and expects its parts. An error says why none can.
  Status expect(const PackageOffer& offer, const std::vector<std::string>& folders);
  Status take(const StagePart& part) { return folder_.take(part); }
  uint64_t taken() const { return folder_.taken(); }
  // Whether a copy is expected whose last part has not come.
  bool is_incomplete() const { return folder_.is_incomplete(); }
  // After the last part: the command that unpacks it, or nothing where it is not packed. `python`: for a host without
  // gzip; may be empty.
  std::optional<RankCommand> unpacking(const std::string& python) const;
  // After that command: checks the files, gives the copy its name, and locks it.
  Status install();
  // The folder for PYTHONPATH, after find() or install().
  std::string python_folder() const;
  const std::string& folder() const { return folder_.path(); }

 private:
  Status unpack(const std::string& list) const;

  std::string name_;
  KeptFolder folder_;
};

}  // namespace hvd::launcher
