// Opens a connection between an agent and its launcher: one function for each kind of connection. The result is two
// descriptors. The agent's main and its LauncherLink call these functions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/agent/link/cipher.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

// Both descriptors are non-blocking, close-on-exec, and greater than 2.
struct Link {
  UniqueFd input;
  UniqueFd output;
  std::unique_ptr<Cipher> cipher = {};  // null: frames are sent without encryption
};

// A connection on which the launcher has requested an offer to resume.
struct Returned {
  Link connection;
  Nonce challenge{};
};

// A connection on which the launcher has begun a session.
struct OpenedLink {
  Link connection;
  OpenSession session;
  // Connects to the launcher again; blocks, may run on any thread. kNotFound: nothing listens there. Null: the
  // agent does not connect by itself.
  std::function<Result<Returned>()> redial = {};
};

// Makes a connection of two descriptors of any kind (ssh, kubectl exec, pipes, a socket).
Result<Link> taken_over(int input, int output);
// Makes a connection of standard input and output. Replaces both by /dev/null, so that a stray write to
// standard output cannot corrupt the connection.
Result<Link> stream_link();

// Waits until the launcher begins or continues a session. Returns an error if the launcher is silent for as
// long as an agent's first lease. kUnavailable: the connection broke. kAborted: the launcher ended it, with a reason.
using Opening = std::variant<OpenSession, Reattach>;
Result<Opening> receive_opening(int input, Cipher* cipher);

// Connects to the launcher at "tcp:address:port" (a numeric address), "unix:/path" or "unix:@name". Both
// sides prove that they hold the token. `name` identifies this agent to the launcher. The address is
// that of the launcher's rendezvous server. kAborted: the launcher wants no agent now. kUnavailable: another call may
// succeed. `cipher` is TLS with that server, before its handshake; null: --insecure-plaintext. `is_keyed`: the token is
// the TLS key; otherwise, a launcher that closes the connection has refused the proof of the token.
Result<Link> call_home(const std::string& address, ByteView token, const std::string& name,
                       Deadline deadline, std::unique_ptr<Cipher> cipher, bool is_keyed);
// Connects to the same launcher to resume. kNotFound: nothing listens there.
Result<Returned> call_again(const std::string& address, Deadline deadline,
                            std::unique_ptr<Cipher> cipher);

}  // namespace hvd::launcher
