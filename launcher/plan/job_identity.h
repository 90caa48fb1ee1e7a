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
// A job whose hosts join with this token. The secret is derived from the token, the random number
// and the generation: the ranks of a job never get the token, with which hosts join other jobs.
JobIdentity joined_job(const Secret& token, uint32_t generation);

}  // namespace hvd::launcher
