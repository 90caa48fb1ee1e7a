// Between our codes and HTTP's, as the table "Errors" of PROTOCOL.md has it. Both ends.
#pragma once

#include "base/status.h"

namespace hvd::rendezvous {

int to_http(Code code);
Code from_http(int status);

}  // namespace hvd::rendezvous
