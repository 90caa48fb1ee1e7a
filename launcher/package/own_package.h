// The Python package horovod of this build or installation with its library and plugins, as it can be sent to hosts:
// python/horovod, lib/libhorovod.so.1 and lib/horovod, which find each other as in a build. Reads files of this machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/protocol/host_job.h"

namespace hvd::launcher {

struct OwnPackage {
  PackageOffer offer;
  std::string list;                // package_list.h
  std::vector<std::string> files;  // on this machine, in the order of the list
};

// `folder`: of the launcher's program. Null where the package or the library is not beside it. `has_program`: with
// bin/horovodrun, for a job that runs it.
Result<std::shared_ptr<const OwnPackage>> read_own_package(const std::string& folder,
                                                           bool has_program = false);

// One program of this machine, as the only file of a package, under this name.
Result<std::shared_ptr<const OwnPackage>> read_program_package(const std::string& path,
                                                               const std::string& name);

}  // namespace hvd::launcher
