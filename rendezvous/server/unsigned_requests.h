// Requests that need no signature: monitoring, agents that call their launcher, and Horovod's own
// workers if --insecure-compat allows them. Stateless functions; a Session calls them on the
// server's loop. An `admit_` function checks the head of a request and returns the refusal, or
// nothing.
#pragma once

#include <optional>
#include <string_view>

#include "net/http.h"
#include "rendezvous/server/server_core.h"
#include "rendezvous/server/service.h"

namespace hvd::rendezvous {

std::optional<Reply> admit_monitor(const ServerCore& core, const net::HttpRequestParser& request);
Reply answer_monitor(const ServerCore& core, std::string_view target);

// `socket` is the connection. The first refusal of an agent without TLS is logged.
std::optional<Reply> admit_agent(ServerCore& core, const net::HttpRequestParser& request,
                                 int socket, bool is_encrypted);

// Requests of Horovod's own workers. `socket` is the connection. `room` gets the room for the body.
// Each kind of refusal of a limit or of a user is logged once.
std::optional<Reply> admit_unsigned(ServerCore& core, const net::HttpRequestParser& request,
                                    int socket, UnsignedStore::Room& room);
Reply answer_unsigned(ServerCore& core, net::HttpRequestParser& request);

}  // namespace hvd::rendezvous
