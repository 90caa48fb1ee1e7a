// Decides whether the launcher's package runs on this host, from the versions that the importing Python reports. Pure.
#pragma once

#include <string>

#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

// An interpreter on this host. A field is empty if the interpreter did not report it, and "none" if it has no such
// library.
struct PythonFacts {
  std::string version;  // "3.11.2"
  std::string machine;  // as uname -m prints it
  std::string glibc;    // "2.36"
  std::string glibcxx;  // the newest version of the symbols of libstdc++: "3.4.30"
};

// Why the package cannot run there, and what to do, as a sentence without the host's name; or empty.
std::string why_package_cannot_run(const PackageOffer& offer, const PythonFacts& facts);

}  // namespace hvd::launcher
