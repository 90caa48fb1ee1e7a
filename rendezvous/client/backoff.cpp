#include "rendezvous/client/backoff.h"

#include <poll.h>

#include <algorithm>

#include "base/secrets/secret.h"

namespace hvd::rendezvous {
namespace {

bool sooner(Deadline a, Deadline b) { return a.time() < b.time(); }

}  // namespace

void Backoff::rest(Deadline deadline) {
  const Deadline until = Deadline::after_seconds(pause_ * (0.5 + random_fraction()));
  ::poll(nullptr, 0, std::min(until, deadline, sooner).poll_timeout());
  pause_ = std::min(pause_ * 2, longest_);
}

}  // namespace hvd::rendezvous
