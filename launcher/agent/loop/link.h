// Opens the link between an agent and its launcher. Each kind of link ends as two descriptors that
// carry frames, and has its own function here. The agent's main calls them.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/agent/loop/cipher.h"

namespace hvd::launcher {

// Both non-blocking, closed on exec, and above 2.
struct Link {
  UniqueFd input;
  UniqueFd output;
  std::unique_ptr<Cipher> cipher = {};  // null: the frames are sent as they are
};

// Standard input and output, whatever they are (ssh, kubectl exec, pipes, a socket). They are
// /dev/null afterwards, so that nothing written there by mistake can disturb the frames.
Result<Link> stream_link();

// Dials the launcher at "tcp:address:port" (no name: nothing here resolves names), "unix:/path" or
// "unix:@name", and admits it only when it holds the token too, as this side proves that it does.
// `name` tells the launcher which of the agents that it awaits this is.
// The address may be a port of the launcher for agents alone (kOwn), or the port of its rendezvous
// server, which gets an HTTP request for the launcher first (kServer). kAborted: the launcher wants
// no agent now.
// `cipher`: TLS with that server, whose handshake is still to come; else null.
enum class Door { kOwn, kServer };
Result<Link> call_home(const std::string& address, ByteView token, const std::string& name,
                       Deadline deadline, Door door = Door::kOwn,
                       std::unique_ptr<Cipher> cipher = nullptr);

}  // namespace hvd::launcher
