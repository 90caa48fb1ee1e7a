#include <doctest/doctest.h>

#include "launcher/plan/worker_env.h"

namespace hvd::launcher {

TEST_CASE("each job of a token has a secret of its own, and none has the token") {
  const Secret token = Secret::random();
  const JobIdentity one = joined_job(token, 0), two = joined_job(token, 0);
  CHECK(one.number != two.number);
  CHECK(one.secret.hex() != two.secret.hex());
  CHECK(one.secret.hex() != token.hex());
  CHECK(one.secret.hex().size() == 64);
}

}  // namespace hvd::launcher
