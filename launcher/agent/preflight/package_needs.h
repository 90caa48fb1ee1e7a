// Decides whether the launcher's package runs on this host, from the versions that the ranks' Python reports. Pure.
#pragma once

#include <string>

#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

// Facts about an interpreter on this host. A field is empty if the interpreter did not report it, and "none" if the
// interpreter lacks that library.
struct PythonFacts {
  std::string version;  // "3.11.2"
  std::string machine;  // output of uname -m
  std::string glibc;    // "2.36"
  std::string glibcxx;  // the newest symbol version of libstdc++: "3.4.30"
};

// Returns why the package cannot run on this host, and the remedy, as a sentence without the host's name; or empty.
std::string why_package_cannot_run(const PackageOffer& offer, const PythonFacts& facts);

}  // namespace hvd::launcher
