// The files of --stage-env that a launch of the job has resolved, and for which hosts. Each launch of the job gets the
// same. Belongs to the job; StagedEnvironment writes it. Pure.
#pragma once

#include <memory>
#include <string>

#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

class EnvironmentFiles;

struct ResolvedEnvironment {
  std::string first_host{};
  EnvironmentWanted first{};  // of that host, with the oldest Python and glibc of all
  std::string oldest_host{};  // empty: all have the same glibc
  std::shared_ptr<EnvironmentFiles> files{};  // null: none are resolved
};

}  // namespace hvd::launcher
