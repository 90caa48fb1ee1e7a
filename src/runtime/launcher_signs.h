// What launchers other than ours have told this process of its place, by variables alone: two
// launchers that have both started it, and do not mean the same, make no job.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "base/settings.h"
#include "runtime/identity.h"

namespace hvd::runtime {

struct ForeignPlace {
  std::string launcher;  // "Open MPI's mpirun (OMPI_COMM_WORLD_RANK)"
  int64_t rank = 0;
  int64_t size = 1;
};

// Nothing where there is none, or where it has started one process: it may have started our launcher.
std::optional<ForeignPlace> foreign_place();

// Not ok, with both places and what to do, where `identity`, of variables or of the rendezvous, is not
// that of the other launcher; `settings` says whether an agent of ours has given it. The original's
// rendezvous is believed: Ray, say, which makes one, may have been started by another launcher.
Status judge_launchers(const Settings& settings, const Identity& identity);

}  // namespace hvd::runtime
