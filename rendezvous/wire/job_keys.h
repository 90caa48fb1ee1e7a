// Names of keys in a job's store that both the runtime and the launcher use.
#pragma once

#include <string>

#include "base/text.h"

namespace hvd::rendezvous {

// The key of a rank whose work failed because another rank left the job. The value is that other
// rank in decimal digits. The launcher reads it to name the rank that caused the end of the job.
// "PEER", or "PEER SENTENCE" if the connection to the peer broke and the peer may be alive.
inline std::string left_by_key(int rank) { return cat("left-by/", rank); }

}  // namespace hvd::rendezvous
