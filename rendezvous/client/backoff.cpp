#include "rendezvous/client/backoff.h"

#include <poll.h>

#include <algorithm>

#include "base/secrets/secret.h"

namespace hvd::rendezvous {
namespace {

bool sooner(Deadline a, Deadline b) { return a.time() < b.time(); }

}  // namespace

void Backoff::rest(Deadline deadline) {
  std::byte random[2];
  fill_random(random);
  const unsigned number =
      std::to_integer<unsigned>(random[0]) << 8 | std::to_integer<unsigned>(random[1]);
  const double share = 0.5 + static_cast<double>(number) / 65536;
  const Deadline until = Deadline::after_seconds(pause_ * share);
  ::poll(nullptr, 0, std::min(until, deadline, sooner).poll_timeout());
  pause_ = std::min(pause_ * 2, longest_);
}

}  // namespace hvd::rendezvous
