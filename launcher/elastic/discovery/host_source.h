// Where the hosts of an elastic job come from. It decides whether others may come later.
#pragma once

namespace hvd::launcher {

enum class HostSource {
  kNamed,    // flags, a file or a scheduler have named all of them
  kScript,   // a discovery script names them anew while the job runs
  kJoining,  // agents join by themselves; each starts its processes once
};

}  // namespace hvd::launcher
