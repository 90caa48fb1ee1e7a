// The launcher's side of a link that an agent dialled: finds out which agent it is and whether it
// holds the token. Lives on the launcher's loop; the caller bounds the time by cancelling.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "launcher/protocol/protocol.h"
#include "launcher/spawn/duplex.h"
#include "net/asio.h"

namespace hvd::launcher {

struct AdmittedAgent {
  std::string name;  // what it was told to call itself by
  std::unique_ptr<Duplex> duplex;
};

// A message to an agent that runs no job yet.
Bytes framed(const Message& message);

// Of a connection that was accepted. An error closes it.
net::Task<Result<AdmittedAgent>> admit(net::StreamSocket socket, Bytes token);

}  // namespace hvd::launcher
