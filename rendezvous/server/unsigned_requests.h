// Requests that need no signature: monitoring, agents that connect to their launcher, and Horovod's own workers if
// --insecure-compat allows them. These functions are stateless. Call them on the server's loop. An `admit_` function
// checks the head of a request and returns the refusal, or nothing.
#pragma once

#include <optional>
#include <string_view>

#include "net/http.h"
#include "rendezvous/server/server_core.h"
#include "rendezvous/server/service.h"

namespace hvd::rendezvous {

std::optional<Reply> admit_monitor(const ServerCore& core, const net::HttpRequestParser& request);
Reply answer_monitor(const ServerCore& core, std::string_view target);

// Admits an agent on the connection `socket`, or returns a refusal. Logs the first refusal of an agent without TLS.
std::optional<Reply> admit_agent(ServerCore& core, const net::HttpRequestParser& request,
                                 int socket, bool is_encrypted);

// Admits a request of Horovod's own workers, and reserves memory for the body in `room`. `socket` is the connection.
// Logs each kind of refusal because of a limit or a user once.
std::optional<Reply> admit_unsigned(ServerCore& core, const net::HttpRequestParser& request,
                                    int socket, UnsignedStore::Room& room);
Reply answer_unsigned(ServerCore& core, net::HttpRequestParser& request);

}  // namespace hvd::rendezvous
