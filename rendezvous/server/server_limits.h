// Limits of a rendezvous server in size, number and time (PROTOCOL.md, "Messages"). A Session
// enforces the limits of its connection, and Server the number of sessions. Tests set smaller limits.
#pragma once

#include <chrono>
#include <cstddef>

#include "net/http.h"

namespace hvd::rendezvous {

struct ServerLimits {
  net::HttpLimits http = {};
  size_t sessions = 100'000;
  // Concurrent connections whose clients have not proven the secret, at most a quarter of the
  // descriptors. A further connection ends the oldest, whose client may connect again.
  size_t unproven = 100'000;
  // Time in which a new connection must prove that it knows the secret.
  std::chrono::milliseconds handshake{10'000};
  // The time from a request's first byte to its last, and the time for a client to accept a reply.
  // A body extends both times by its size divided by `rate`, in bytes per second.
  std::chrono::milliseconds transfer{60'000};
  size_t rate = 256 * 1024;

  std::chrono::milliseconds transfer_time(size_t body) const { return transfer + body_time(body); }
  std::chrono::milliseconds body_time(size_t body) const {
    return std::chrono::milliseconds(body * 1000 / rate);
  }
};

}  // namespace hvd::rendezvous
