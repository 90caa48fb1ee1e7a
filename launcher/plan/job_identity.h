// The number of a job, and the secret of its ranks. Plain data without I/O.
#pragma once

#include <cstdint>

#include "base/secrets/secret.h"

namespace hvd::launcher {

struct JobIdentity {
  uint64_t number = 0;
  Secret secret;
};

JobIdentity random_job();
// Returns the identity of a job whose hosts join with this token. The secret is derived from the token, the job's
// random number and the generation. Ranks never get the token, because hosts also join other jobs with it.
JobIdentity joined_job(const Secret& token, uint32_t generation);

}  // namespace hvd::launcher
