// What a rendezvous server grants its clients.
#pragma once

#include <chrono>
#include <cstddef>

#include "net/http.h"

namespace hvd::rendezvous {

struct ServerLimits {
  net::HttpLimits http = {};
  size_t sessions = 100'000;
  // Of a connection that has not proven that it knows the secret.
  std::chrono::milliseconds handshake{10'000};
  // From a request's first byte to its last, and for a reply to be taken; a body has the time that
  // it takes at `rate` bytes a second on top.
  std::chrono::milliseconds transfer{60'000};
  size_t rate = 256 * 1024;

  std::chrono::milliseconds transfer_time(size_t body) const { return transfer + body_time(body); }
  std::chrono::milliseconds body_time(size_t body) const {
    return std::chrono::milliseconds(body * 1000 / rate);
  }
};

}  // namespace hvd::rendezvous
