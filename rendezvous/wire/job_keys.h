// Keys of a job's store that more than one part of it knows by name.
#pragma once

#include <string>

#include "base/text.h"

namespace hvd::rendezvous {

// Set by a rank whose work failed because another rank left the job, to that rank in decimal
// digits: who reports the job's end looks there for the rank that began it.
inline std::string left_by_key(int rank) { return cat("left-by/", rank); }

}  // namespace hvd::rendezvous
