// What a server answers without a signature: monitoring, agents that call their launcher, and the
// original's workers where they are admitted. Functions without state: an `admit_` looks at the head
// of a request and returns why it is refused, or nothing. On the server's loop.
#pragma once

#include <optional>
#include <string_view>

#include "net/http.h"
#include "rendezvous/server/server_core.h"
#include "rendezvous/server/service.h"

namespace hvd::rendezvous {

std::optional<Reply> admit_monitor(const ServerCore& core, const net::HttpRequestParser& request);
Reply answer_monitor(const ServerCore& core, std::string_view target);

std::optional<Reply> admit_agent(const ServerCore& core, const net::HttpRequestParser& request);

// Of the original's workers.
std::optional<Reply> admit_unsigned(const net::HttpRequestParser& request);
Reply answer_unsigned(UnsignedStore& store, net::HttpRequestParser& request);

}  // namespace hvd::rendezvous
