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

// Both descriptors are non-blocking, close-on-exec, and above 2.
struct Link {
  UniqueFd input;
  UniqueFd output;
  std::unique_ptr<Cipher> cipher = {};  // null: frames are sent without encryption
};

// Takes standard input and output as the link, of any kind (ssh, kubectl exec, pipes, a socket).
// Replaces both by /dev/null, so that a stray write to standard output cannot corrupt the frames.
Result<Link> stream_link();

// Dials the launcher at "tcp:address:port" (a numeric address), "unix:/path" or "unix:@name". Both
// sides prove that they have the token. `name` identifies this agent to the launcher. The address
// is the port of its rendezvous server. kAborted: the launcher wants no agent now. `cipher` is TLS
// with that server, before its handshake; null: --insecure-plaintext.
Result<Link> call_home(const std::string& address, ByteView token, const std::string& name,
                       Deadline deadline, std::unique_ptr<Cipher> cipher);

}  // namespace hvd::launcher
