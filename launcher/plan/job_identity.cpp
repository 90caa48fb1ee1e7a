#include "launcher/plan/job_identity.h"

#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/plan/worker_env.h"

namespace hvd::launcher {

// The number of a job is odd, because 0 means that there is no job.
JobIdentity random_job() { return {random_number() | 1, Secret::random()}; }

JobIdentity joined_job(const Secret& token, uint32_t generation) {
  const uint64_t number = random_number() | 1;
  const Digest key = token.derive(cat("horovod job 1 ", job_name(number), " ", generation));
  return {number, *Secret::from_bytes(key)};
}

}  // namespace hvd::launcher
