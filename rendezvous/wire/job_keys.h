// Names of keys in a job's store that both the runtime and the launcher use.
#pragma once

#include <string>

#include "base/text.h"

namespace hvd::rendezvous {

// Returns the key of a rank whose work failed because another rank, PEER, left the job. The value is "PEER", in
// decimal digits, or "PEER SENTENCE" if the connection to the peer broke and the peer may be alive.
// The launcher reads this key to name the rank that caused the end of the job.
inline std::string left_by_key(int rank) { return cat("left-by/", rank); }

}  // namespace hvd::rendezvous
