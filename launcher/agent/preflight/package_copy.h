// The copy of the launcher's package horovod on this host: PARENT/horovod-package-NAME in the folder of the agent,
// where later jobs find the copy. NAME is the hash of its list of files (package_list.h), and each file is compared
// with the list before each use. Incomplete copies have other names. Holds a shared lock on the copy in use, which
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

  // Searches these folders (agent_folders) for a complete copy, and locks it.
  bool find(const PackageOffer& offer, const std::vector<std::string>& folders);
  // Chooses the first folder that can store a new copy, and expects its parts. The error states why no folder can.
  Status expect(const PackageOffer& offer, const std::vector<std::string>& folders);
  Status take(const StagePart& part) { return folder_.take(part); }
  uint64_t taken() const { return folder_.taken(); }
  // Returns whether parts of an expected copy are missing.
  bool is_incomplete() const { return folder_.is_incomplete(); }
  // Call after the last part. Returns the command that unpacks the copy, or nothing if it is not packed. `python`:
  // unpacks on a host without gzip; may be empty.
  std::optional<RankCommand> unpacking(const std::string& python) const;
  // Call after the command of unpacking() has ended. Checks the files, gives the copy its name, and locks it.
  Status install();
  // Returns the folder for PYTHONPATH. Call after find() or install().
  std::string python_folder() const;
  const std::string& folder() const { return folder_.path(); }

 private:
  Status unpack(const std::string& list) const;

  std::string name_;
  KeptFolder folder_;
};

// Versions that the ranks' Python interpreter on this host reports. A field is empty if the interpreter did not report
// it, and "none" if the interpreter lacks that library.
struct PythonFacts {
  std::string version;  // "3.11.2"
  std::string machine;  // output of uname -m
  std::string glibc;    // "2.36"
  std::string glibcxx;  // the newest symbol version of libstdc++: "3.4.30"
};

// Returns why the package cannot run on this host, and the remedy, as a sentence without the host's name; or empty.
std::string why_package_cannot_run(const PackageOffer& offer, const PythonFacts& facts);

}  // namespace hvd::launcher
