// Converts between Code and HTTP status by the table "Errors" of PROTOCOL.md. Stateless; called by
// the server (to_http) and its clients (from_http).
#pragma once

#include "base/status.h"

namespace hvd::rendezvous {

int to_http(Code code);
Code from_http(int status);

}  // namespace hvd::rendezvous
